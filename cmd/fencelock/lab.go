package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/child"
	"github.com/fencelock/fencelock/lab"
)

// exitNotAsTold is the exit code of a lab that did not go as its text says.
const exitNotAsTold = 1

// labPatience is how long one scheme may take: it needs a second or two.
const labPatience = time.Minute

func newLab(c *cli) *cobra.Command {
	var lang string
	var all bool
	cmd := &cobra.Command{
		Use:   "lab [N]",
		Short: "See the locks of well-known tutorials break",
		Long: `lab lists locks as tutorials write them, and what each of them breaks. lab N plays
one, step by step: what clients A and B do, what the store holds after it, where it
broke, and the same schedule against fencelock. --all plays all of them.

It needs no store of yours and touches none: it starts a redis-server of its own, in a
scratch folder, on loopback ports, and ends it. The exit code is 0 if everything
behaved as the text says, 1 if not.`,
		Args: func(_ *cobra.Command, args []string) error {
			if all && len(args) > 0 {
				return usage("--all plays every scheme; leave out %s", quote(args[0]))
			}
			if len(args) > 1 {
				return usage("want at most one argument, the number of a scheme, and not %d", len(args))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			l, err := labLang(lang)
			if err != nil {
				return err
			}
			switch {
			case all:
				return playLab(c.out, lab.All(), l)
			case len(args) == 1:
				e, err := findScheme(args[0])
				if err != nil {
					return err
				}
				return playLab(c.out, []lab.Experiment{e}, l)
			}
			return listLab(c.out, l)
		},
	}
	cmd.Flags().StringVar(&lang, "lang", "", "en or zh (default from LC_ALL, LC_MESSAGES, LANG)")
	cmd.Flags().BoolVar(&all, "all", false, "play all schemes, one after the other")
	return cmd
}

// labLang is the language that is asked for, or that of the locale if the lab speaks
// it, or English.
func labLang(asked string) (lab.Lang, error) {
	if asked != "" {
		l, ok := lab.ParseLang(asked)
		if !ok {
			return l, usage("--lang %s: want en or zh", quote(asked))
		}
		return l, nil
	}
	for _, name := range []string{"LC_ALL", "LC_MESSAGES", "LANG"} {
		if s := os.Getenv(name); s != "" {
			l, _ := lab.ParseLang(s)
			return l, nil
		}
	}
	return lab.English, nil
}

func findScheme(number string) (lab.Experiment, error) {
	all := lab.All()
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > len(all) {
		return lab.Experiment{}, usage("there is no scheme %s; there are 1 to %d: see fencelock lab", quote(number), len(all))
	}
	return all[n-1], nil
}

// playLab plays schemes and shows them as they end.
func playLab(w io.Writer, all []lab.Experiment, l lab.Lang) error {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return fail(exitConfig, "%s", labText("noRedis", l))
	}
	ctx, stop := untilSignal()
	defer stop(nil)
	dir, err := os.MkdirTemp("", "fencelock-lab-*")
	if err != nil {
		return fail(exitConfig, "cannot make a scratch folder: %v", err)
	}
	defer os.RemoveAll(dir)
	say(labText("starting", l), dir)
	redis.SetLogger(noRedisLog{}) // nodes that cannot be reached are part of the play

	var wrong []string
	for i, e := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		r, err := playOne(ctx, e, dir)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			say("%v", err)
			wrong = append(wrong, strconv.Itoa(e.Number))
			continue
		}
		told := r.AsTold(e)
		if !told {
			wrong = append(wrong, strconv.Itoa(e.Number))
		}
		if err := showPlay(w, e, r, told, l); err != nil {
			return err
		}
	}
	if len(wrong) > 0 {
		return fail(exitNotAsTold, labText("wrong", l), strings.Join(wrong, ", "))
	}
	return nil
}

// untilSignal is a context that ends when somebody asks this process to; its cause
// says how to exit.
func untilSignal() (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		n, name := child.SignalNumber(s)
		err := fail(128+n, "%s: the lab is over", name)
		if s == os.Interrupt {
			err = interrupted{err}
		}
		cancel(err)
	}()
	return ctx, cancel
}

// playOne plays one scheme.
func playOne(ctx context.Context, e lab.Experiment, dir string) (lab.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, labPatience)
	defer cancel()
	return e.Play(ctx, dir)
}

// noRedisLog keeps the client library's own messages off the terminal.
type noRedisLog struct{}

func (noRedisLog) Printf(context.Context, string, ...any) {}
