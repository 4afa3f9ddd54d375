package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/terminal"
)

func newBench(c *cli) *cobra.Command {
	length := seconds{d: 5 * time.Second}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the store, and say what to expect of it",
		Long: `bench measures the store from this host, for about the seconds of --for: one request, a
free lock, 64 free locks at once, one lock passed on inside a program and between two
programs, and the renewal of 64 leases. Then it says what the figures mean for a program.

It uses 64 names that begin with bench- and random characters, so it meets no other
locks. It releases them all, also when it is interrupted. If it is killed, they stay
taken for 10 seconds. Some stores keep the last token of a name for a day. bench loads
a store that others use for as long as it runs.

-o json prints one object; times in it are microseconds.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			asJSON, err := c.json()
			if err != nil {
				return err
			}
			if length.d < 200*time.Millisecond || length.d > time.Hour {
				return usage("--for is %v; want 0.2 seconds to an hour", length.d)
			}
			return c.bench(length.d, asJSON)
		},
	}
	cmd.Flags().Var(&length, "for", "how long to measure")
	c.outputFlag(cmd)
	return cmd
}

func (c *cli) bench(length time.Duration, asJSON bool) error {
	s, err := c.findStore()
	if err != nil {
		return err
	}
	if s.notice != "" {
		say("this measures locks %s", s.notice)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A store that has become slow or silent ends it, too.
	bounded, cancel := context.WithTimeout(ctx, 2*length+firstContact/2)
	defer cancel()

	m, err := newMeter(bounded, s)
	if err != nil {
		return err
	}
	err = m.run(bounded, length)
	m.close()
	switch {
	case ctx.Err() != nil:
		return fail(exitNotAcquired, "interrupted; nothing was left on %s", s)
	case errors.Is(err, fencelock.ErrNotAcquired):
		// Nobody else wants these names: whoever has one could not give it back in time.
		return s.silent("", context.DeadlineExceeded)
	case err != nil:
		return explain(s, "", err)
	case asJSON:
		return writeJSON(c.out, m.seen, true)
	}
	return m.seen.show(c.out)
}

// benchView is what was measured. Times are in microseconds. Fields only ever grow in
// number.
type benchView struct {
	Store    string    `json:"store"`
	Platform string    `json:"platform"`
	CPUs     int       `json:"cpus"`
	Request  quantiles `json:"request"`       // one question and its answer
	Free     quantiles `json:"free"`          // a lock that nobody else wants, and its release
	Many     float64   `json:"many_per_s"`    // locks a second, 64 goroutines with a name each
	Inside   float64   `json:"inside_per_s"`  // hand-overs a second, 64 goroutines of one program on one name
	Between  quantiles `json:"between"`       // from a release in one program to the grant in another
	Renewal  quantiles `json:"renewal"`       // of 64 leases, in one call
	Leases   int       `json:"leases"`        // how many that are
	Waits    bool      `json:"waits_in_line"` // false: waiters ask again and again
}

type quantiles struct {
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
	N   int     `json:"n"`
}

func (v *benchView) show(w io.Writer) error {
	fmt.Fprintf(w, "%s, from %s with %d CPUs\n\n", v.Store, v.Platform, v.CPUs)
	rows := [][]string{
		{"", "P50", "P99"},
		{"one request and its answer", micros(v.Request.P50), micros(v.Request.P99)},
		{"a free lock and its release", micros(v.Free.P50), micros(v.Free.P99)},
		{"hand-over to another program", micros(v.Between.P50), micros(v.Between.P99)},
		{fmt.Sprintf("renewal of %d leases", v.Leases), micros(v.Renewal.P50), micros(v.Renewal.P99)},
	}
	if err := terminal.Table(w, rows, nil); err != nil {
		return err
	}
	fmt.Fprintln(w)
	rows = [][]string{
		{"", "A SECOND"},
		{fmt.Sprintf("locks, %d names at once", benchNames), rate(v.Many)},
		{"hand-overs inside one program", rate(v.Inside)},
	}
	if err := terminal.Table(w, rows, nil); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nWhat to expect:\n%s", v.advice())
	return err
}

// advice says what the numbers mean.
func (v *benchView) advice() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "  "+format+"\n", args...) }
	line("One goroutine by itself locks and releases about %s times a second, %d at once %s times.",
		rate(1e6/v.Free.P50), benchNames, rate(v.Many))
	if v.Request.P50 > 0 {
		line("A free lock takes the time of %.1f requests.", v.Free.P50/v.Request.P50)
	}
	line("One name goes from program to program at most %s times a second: work under it that takes",
		rate(1e6/v.Between.P50))
	line("less than %s is outweighed by the lock. Inside one program it goes around %s times.",
		micros(v.Between.P50), rate(v.Inside))
	if !v.Waits {
		line("This store keeps no line: who waits asks again and again, and may be overtaken.")
	}
	// Each lease is renewed every third of it.
	busy := 10000 / float64(v.Leases) * v.Renewal.P50 / 1e6 / 10
	line("10 000 locks held with leases of 30 s keep one connection busy for %.2g %% of the time.", 100*busy)
	return b.String()
}

// micros shows microseconds.
func micros(x float64) string {
	switch {
	case x >= 1e5:
		return fmt.Sprintf("%.2f s", x/1e6)
	case x >= 1e3:
		return fmt.Sprintf("%.1f ms", x/1e3)
	case x >= 10:
		return fmt.Sprintf("%.0f µs", x)
	}
	return fmt.Sprintf("%.1f µs", x)
}

// rate shows how often something happens, to two or three digits that count.
func rate(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.1f million", x/1e6)
	case x >= 1e4:
		return fmt.Sprintf("%.0f 000", x/1e3)
	case x >= 1e3:
		return fmt.Sprintf("%.0f", x/10) + "0"
	case x >= 10:
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.1f", x)
}

func platform() string { return runtime.GOOS + "/" + runtime.GOARCH }
