package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/doctor"
	"github.com/fencelock/fencelock/driver/health"
	"github.com/fencelock/fencelock/internal/terminal"
	"github.com/fencelock/fencelock/storeurl"
)

// doctorFlags are those of the verb doctor.
type doctorFlags struct {
	ttl, work, failover, wait seconds
	quick, race               bool
}

const doctorHelp = `doctor reads the settings of the store that matter to locks, makes 200 requests in two
seconds, and compares the store's clock with the clock of this host. For each setting that
endangers locks it says what was read, why it matters, and what mends it. Then it advises a
--ttl.

  error    locks are lost or refused while nothing fails
  warning  a crash, a failover or a busy hour may cost locks
  note     worth knowing, or could not be read

What the user may not read is a note. doctor changes no setting. It takes two locks with
random names below fencelock/doctor/, and releases them. Some stores keep the last token of
a name for a day.

--work says how long the command under the lock takes, the longest of a thousand times.
--failover says how long the store needs to replace a server that died, where the store's
settings do not.

--quick is for health checks: it asks the store once, takes no lock, and reads no settings.
-w bounds how long it waits for an answer. On Redis it reads keys: one node of a Cluster is
refused, because it serves some names only. Of a quorum it asks each server which one it is,
and refuses two that are one. Exit codes: 0 the store answers, 69 it does not, 78 it refuses
the user, the password or the settings.

--race shows whether the store lets one client win: 32 racers on 32 connections wait for one
signal and then try to take one lock with a random name, a hundred times. It says how many won,
and prints a line to paste. Some stores accept a condition and do not apply it, and some
addresses lead to two stores. It cannot show what happens while servers fail. Exit codes: 0 if no
lock was granted twice, 78 if one was, 69 if nobody ever won.

-o json prints one object; times in it are microseconds. Exit codes of an examination: 0 for notes
or nothing, 75 for a warning, 78 for an error, 69 if the store does not answer.`

func newDoctor(c *cli) *cobra.Command {
	f := doctorFlags{ttl: seconds{d: fencelock.DefaultTTL}, wait: seconds{d: firstContact}}
	cmd := &cobra.Command{
		Use:        "doctor",
		SuggestFor: []string{"ping", "health", "healthcheck"},
		Short:      "Is the store set up for locks, and which --ttl suits it?",
		Long:       doctorHelp,
		Args:       cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := c.json()
			if err != nil {
				return err
			}
			if err := f.check(cmd.Flags().Changed); err != nil {
				return err
			}
			switch {
			case f.quick:
				return c.quick(f.wait.d)
			case f.race:
				return c.race(asJSON)
			}
			return c.doctor(f, asJSON)
		},
	}
	p := cmd.Flags()
	p.Var(&f.ttl, "ttl", "judge the store for leases of this length")
	p.Var(&f.work, "work", "how long the work under a lock takes")
	p.Var(&f.failover, "failover", "how long the store takes to replace a server that died")
	p.BoolVar(&f.quick, "quick", false, "ask the store once, for health checks")
	p.BoolVar(&f.race, "race", false, "let 32 racers try to take one lock, 100 times, and count who won")
	p.VarP(&f.wait, "wait", "w", "with --quick: wait at most this long for an answer")
	c.outputFlag(cmd)
	return cmd
}

func (f *doctorFlags) check(set func(string) bool) error {
	switch {
	case f.ttl.d <= 0:
		return usage("--ttl must be positive")
	case f.wait.set && !f.quick:
		return usage("-w is for --quick; an examination takes the time that it takes")
	case f.wait.d <= 0:
		return usage("-w is %v; the store needs time for an answer", f.wait.d)
	case f.quick && (set("ttl") || set("work") || set("failover") || set("output")):
		return usage("--quick judges nothing and prints one line; leave out --ttl, --work, --failover and -o")
	case f.race && (f.quick || set("ttl") || set("work") || set("failover")):
		return usage("--race counts winners only; leave out --quick, --ttl, --work and --failover")
	}
	return nil
}

// quick asks the store once.
func (c *cli) quick(patience time.Duration) error {
	s, err := c.findStore()
	if err != nil {
		return err
	}
	begun := time.Now()
	open, err := s.connect(context.Background(), "", patience)
	if err != nil {
		return err
	}
	took := time.Since(begun)
	defer closeSoon(open.Close)
	if quorum, ok := open.Backend.(interface{ Distinct(context.Context) error }); ok {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := quorum.Distinct(ctx); err != nil {
			return explain(s, "", err)
		}
	}
	_, err = fmt.Fprintf(c.out, "%s answers after %v\n", s, took.Round(10*time.Microsecond))
	return err
}

func (c *cli) doctor(f doctorFlags, asJSON bool) error {
	s, err := c.findStore()
	if err != nil {
		return err
	}
	if s.notice != "" {
		say("this examines locks %s", s.notice)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s.examined, s.conns = true, 2
	open, err := s.connect(ctx, "", firstContact)
	if err != nil {
		return err
	}
	o := doctor.Options{TTL: f.ttl.d, Work: f.work.d, Failover: f.failover.d}
	if !f.failover.set {
		o.Failover = open.Failover(ctx)
	}
	report, err := doctor.Check(ctx, open.Backend, &o)
	closeSoon(open.Close)
	switch {
	case ctx.Err() != nil:
		return fail(exitNotAcquired, "interrupted; nothing was left on %s", s)
	case err != nil:
		return explain(s, "", err)
	}
	view := newDoctorView(s.URL, report)
	if asJSON {
		err = writeJSON(c.out, view, true)
	} else {
		err = view.show(c.out)
	}
	if err != nil {
		return err
	}
	switch worst, _ := report.Severity(); worst {
	case health.Error:
		return silently(exitConfig)
	case health.Warning:
		return silently(exitNotAcquired)
	}
	return nil
}

// doctorView is what doctor found. Times are in microseconds. Fields only ever grow in
// number.
type doctorView struct {
	Store    string        `json:"store"`
	Severity string        `json:"severity,omitempty"` // the worst: note, warning, error
	Findings []findingView `json:"findings"`
	Requests struct {
		N      int     `json:"n"`
		Failed int     `json:"failed"`
		P50    float64 `json:"p50_us"`
		P99    float64 `json:"p99_us"`
		P999   float64 `json:"p999_us"`
	} `json:"requests"`
	Clock    *clockView `json:"clock,omitempty"` // if the store tells its time
	Failover float64    `json:"failover_us,omitempty"`
	Advice   struct {
		Least float64  `json:"least_ttl_us"`
		TTL   float64  `json:"ttl_us"`
		Why   []string `json:"why"`
	} `json:"advice"`

	report doctor.Report
}

type findingView struct {
	Severity string `json:"severity"`
	Code     string `json:"code"`
	Server   string `json:"server,omitempty"`
	Setting  string `json:"setting"`
	Value    string `json:"value"`
	Why      string `json:"why"`
	Remedy   string `json:"remedy"`
}

type clockView struct {
	Offset float64 `json:"ahead_us"`
	Rate   float64 `json:"rate"`
	Error  float64 `json:"rate_error"`
}

func newDoctorView(u *storeurl.URL, r doctor.Report) *doctorView {
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	v := &doctorView{Store: u.String(), Findings: []findingView{}, Failover: us(r.Failover), report: r}
	if worst, found := r.Severity(); found {
		v.Severity = worst.String()
	}
	for _, f := range r.Findings {
		v.Findings = append(v.Findings, findingView{
			f.Severity.String(), f.Code, f.Server, f.Setting, f.Value, f.Why, f.Remedy,
		})
	}
	q := r.Requests
	v.Requests.N, v.Requests.Failed = q.N, q.Failed
	v.Requests.P50, v.Requests.P99, v.Requests.P999 = us(q.P50), us(q.P99), us(q.P999)
	if k := r.Clock; k != nil {
		v.Clock = &clockView{us(k.Offset), k.Rate, k.Error}
	}
	v.Advice.Least, v.Advice.TTL, v.Advice.Why = us(r.Advice.Least), us(r.Advice.TTL), r.Advice.Why
	return v
}

// show prints a table of the findings, what each means, and what was measured.
func (v *doctorView) show(w io.Writer) error {
	fmt.Fprintf(w, "%s\n\n", v.Store)
	if len(v.Findings) == 0 {
		fmt.Fprintln(w, "Nothing was found that endangers locks.")
	} else if err := v.showFindings(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := terminal.Table(w, v.measured(), nil); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nAdvice: --ttl %v\n%s", v.report.Advice.TTL, indented(v.Advice.Why...))
	return err
}

func (v *doctorView) showFindings(w io.Writer) error {
	rows := [][]string{{"SEVERITY", "CODE", "SETTING", "VALUE"}}
	for _, f := range v.Findings {
		rows = append(rows, []string{f.Severity, f.Code, plain(f.Setting), plain(f.Value)})
	}
	fit(rows, terminalWidth(os.Stdout), 3) // the value
	var colour func(column int, cell string) string
	if colours(os.Stdout) {
		colour = func(column int, cell string) string {
			if column != 0 {
				return cell
			}
			return paint(cell, cell)
		}
	}
	if err := terminal.Table(w, rows, colour); err != nil {
		return err
	}
	for _, f := range v.Findings {
		at := ""
		if f.Server != "" {
			at = " at " + plain(f.Server)
		}
		fmt.Fprintf(w, "\n%s%s\n%s", f.Code, at, indented(plain(f.Why), "To mend it: "+plain(f.Remedy)))
	}
	return nil
}

// indented breaks paragraphs into lines that fit a narrow terminal.
func indented(paragraphs ...string) string {
	const width = 88
	var b strings.Builder
	for _, p := range paragraphs {
		line := " "
		for _, word := range strings.Fields(p) {
			if len(line) > 1 && terminal.Columns(line)+1+terminal.Columns(word) > width {
				b.WriteString(line + "\n")
				line = " "
			}
			line += " " + word
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

func (v *doctorView) measured() [][]string {
	r, q := &v.report, &v.Requests
	rows := [][]string{
		{"MEASURED", "P50", "P99", "P99.9"},
		{fmt.Sprintf("%d renewals", q.N), micros(q.P50), micros(q.P99), micros(q.P999)},
	}
	if k := r.Clock; k != nil {
		rows = append(rows, []string{
			"the store's clock", fmt.Sprintf("%+.3f s", k.Offset.Seconds()), fmt.Sprintf("rate %.4f", k.Rate),
			fmt.Sprintf("± %.4f", k.Error),
		})
	}
	if r.Failover > 0 {
		rows = append(rows, []string{"a failover", span(r.Failover), "", ""})
	}
	return rows
}
