package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/quorumlock"
)

func newInit(c *cli) *cobra.Command {
	var yes, change bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Let a new quorum begin at once",
		Long: `init tells the servers of a quorum (redlock:) that nobody holds a lock from before. A new
server looks like one that has lost its data, so without init a new quorum grants
nothing for five minutes. init changes nothing on servers that have granted locks. Do
not run it to shorten the wait after a restart: a lock that the server has forgotten may
still be held.

The servers remember what the quorum has agreed on: skew=, quarantine= and durable= of the URL,
which are Membership in a Go program. A program that says something else is refused. With
--change the servers agree on what this URL says. Stop all programs of the quorum first.

It asks first. Without a terminal to ask on, it wants --yes.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if !yes && !isTerminal(os.Stdin) {
				return usage("there is no terminal to ask on whether the servers are new; add --yes")
			}
			return c.initialise(yes, change)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&change, "change", false, "have the servers agree on the parameters of this URL")
	return cmd
}

func (c *cli) initialise(yes, change bool) error {
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
		question := "Are the servers of %s new, so that nobody can hold a lock from before? [y/N] "
		if change {
			question = "Have all programs of %s ended, so that nobody can hold a lock from before? [y/N] "
		}
		fmt.Fprintf(os.Stderr, question, s)
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
	q, ok := open.Backend.(*quorumlock.Backend)
	if !ok {
		return usage("%s needs no init", s)
	}
	if change {
		err = q.ChangeMembership(ctx)
	} else {
		err = q.Initialise(ctx)
	}
	switch {
	case errors.Is(err, driver.ErrPermanent):
		return fail(exitConfig, "%s: %s", s, strings.ReplaceAll(err.Error(), "\n", "; "))
	case err != nil:
		return fail(exitUnavailable, "%s: not all servers could be told: %s; run init again when they are up, or "+
			"let the others wait by themselves", s, cause(err))
	}
	say("%s begins at once", s)
	return nil
}
