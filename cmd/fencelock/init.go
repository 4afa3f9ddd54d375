package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func newInit(c *cli) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Let a new quorum begin at once",
		Long: `init says to the servers of a quorum (redlock:) that no lock can be left from before. A
server that is new cannot be told from one that has lost its data, so without init a
new quorum grants nothing for five minutes. On servers that are at work it changes
nothing. Do not run it to shorten the wait of a server that was restarted: what that
one has forgotten may still be held.

It asks first. Without a terminal to ask on, it wants --yes.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if !yes && !isTerminal(os.Stdin) {
				return usage("there is no terminal to ask on whether the servers are new; add --yes")
			}
			return c.initialise(yes)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (c *cli) initialise(yes bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), firstContact)
	defer cancel()
	s, err := c.findStore()
	if err != nil {
		return err
	}
	if s.Scheme != "redlock" {
		return usage("%s is no quorum and needs no init; it is for redlock:", s)
	}
	if !yes {
		fmt.Fprintf(os.Stderr, "Are the servers of %s new, so that nobody can hold a lock from before? [y/N] ", s)
		answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
			return fail(exitNotAcquired, "nothing was changed")
		}
	}
	open, err := s.connect(ctx, "", firstContact)
	if err != nil {
		return err
	}
	defer open.Close()
	q, ok := open.Backend.(interface{ Initialise(context.Context) error })
	if !ok {
		return usage("%s needs no init", s)
	}
	if err := q.Initialise(ctx); err != nil {
		return fail(exitUnavailable, "%s: not all servers could be told: %s; run init again when they are up, or let the others wait by themselves", s, cause(err))
	}
	say("%s begins at once", s)
	return nil
}
