package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
)

// lookEvery is how often wait and watch look at the store.
const lookEvery = 250 * time.Millisecond

func newWait(c *cli) *cobra.Command {
	var limit seconds
	var verbose bool
	cmd := &cobra.Command{
		Use:        "wait NAME",
		SuggestFor: []string{"free"},
		Short:      "Wait until a name is free, without holding it",
		Long: `wait exits 0 once no process holds NAME or waits for it. It does not queue and does not take
the lock, so a name in constant use may never be found free. With -w it gives up after
that time and exits 75. With -w 0 it only says whether the name is free now; that may have
changed by the time you act on it. It reads the store four times a second.`,
		Args: oneName,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := c.refuseMemory("wait", args[0]); err != nil {
				return err
			}
			if now := limit.set && limit.d == 0; !now {
				if err := checkNesting(args[0]); err != nil {
					return err
				}
			}
			return c.waitFree(args[0], limit, verbose)
		},
	}
	cmd.Flags().VarP(&limit, "wait", "w", "wait at most this long (default: forever)")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "tell what happens on stderr")
	return cmd
}

func (c *cli) waitFree(name string, limit seconds, verbose bool) error {
	ctx := context.Background()
	end := time.Now().Add(limit.d) // the first contact is part of the waiting
	s, err := c.lookWithin(ctx, name, limit)
	if err != nil {
		return err
	}
	defer s.close()
	for told := false; ; {
		line, err := s.Line(ctx, name)
		if err != nil {
			return explain(s.store, name, err)
		}
		if len(line.Claims) == 0 {
			return nil
		}
		who := heldBy(headOf(line))
		left := lookEvery
		if limit.set {
			left = min(left, time.Until(end))
		}
		if left <= 0 {
			return fail(exitNotAcquired, "%s is not free: %s, on %s", quote(name), who, s.store)
		}
		if !told && (verbose || isTerminal(os.Stderr)) {
			say("waiting until %s is free, %s", quote(name), who)
			told = true
		}
		time.Sleep(left)
	}
}

// headOf describes the first claim of a line as what stands in the way.
func headOf(l fencelock.Line) *fencelock.HeldError {
	c := l.Claims[0]
	return &fencelock.HeldError{Key: l.Key, Standing: c, Ahead: len(l.Claims)}
}

// refuseMemory refuses the store that no other process sees, for verbs that would always
// say the same there.
func (c *cli) refuseMemory(verb, name string) error {
	s, err := c.findStore()
	if err != nil {
		return err
	}
	if s.Private() {
		return unusable(usage("memory: is seen by nobody outside this process, so %s %s would mean nothing; set %s, "+
			"or use --url local:", verb, quote(name), envURL), s.source)
	}
	return nil
}
