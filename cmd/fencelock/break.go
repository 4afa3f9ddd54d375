package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

func newBreak(c *cli) *cobra.Command {
	var token, reason string
	var yes bool
	cmd := &cobra.Command{
		Use:   "break NAME --token N",
		Short: "End a grant, or remove a waiter from the line",
		Long: `break ends the grant of NAME that has this token (fencelock show NAME prints it). It
refuses if that grant has ended already, so it never hits the next holder by mistake.
The holder is told, with the reason. Until then it may go on writing while the next
holder has the lock already: let what is written to check the token.

It asks first. Without a terminal to ask on, it wants --yes.`,
		Args: oneName,
		RunE: func(_ *cobra.Command, args []string) error {
			n, err := fence.Parse(token)
			if err != nil || n == 0 {
				return usage("--token %s: want the token of the grant to end, as fencelock show %s prints it",
					quote(token), plain(args[0]))
			}
			if len(reason) > driver.MaxNote {
				return usage("--reason has %d bytes; at most %d", len(reason), driver.MaxNote)
			}
			if !yes && !isTerminal(os.Stdin) {
				return usage("there is no terminal to ask on whether to break %s; add --yes", quote(args[0]))
			}
			return c.breakGrant(args[0], n, reason, yes)
		},
	}
	cmd.Flags().StringVar(&token, "token", "", "the token of the grant to end")
	cmd.Flags().StringVar(&reason, "reason", "", "what the holder is told")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (c *cli) breakGrant(name string, token fence.Token, reason string, yes bool) error {
	ctx := context.Background()
	s, err := c.look(ctx, name)
	if err != nil {
		return err
	}
	defer s.close()
	line, err := s.Line(ctx, name)
	if err != nil {
		return explain(s.store, name, err)
	}
	claim, ok := withToken(line, token)
	if !ok {
		return s.notThere(line, token)
	}
	if !yes && !ask(line, claim) {
		return fail(exitNotAcquired, "%s: nothing was changed", quote(name))
	}
	switch err := s.Break(ctx, name, token, reason); {
	case errors.Is(err, fencelock.ErrNoClaim):
		return s.notThere(line, token)
	case err != nil:
		return explain(s.store, name, err)
	}
	say("%s: the grant with token %s of %s was ended", quote(name), token, plain(claim.Owner))
	return nil
}

func withToken(l fencelock.Line, token fence.Token) (fencelock.Standing, bool) {
	for _, c := range l.Claims() {
		if c.HasToken(token) {
			return c, true
		}
	}
	return fencelock.Standing{}, false
}

func (s *session) notThere(l fencelock.Line, token fence.Token) error {
	now := "nobody holds it"
	if len(l.Claims()) > 0 {
		now = fmt.Sprintf("its token is %s now, %s", l.Claims()[0].Token, heldBy(headOf(l)))
	}
	return fail(exitNotAcquired, "%s on %s has no claim with token %s, so nothing was changed; %s",
		quote(l.Key), s.store, token, now)
}

// ask shows what would be ended.
func ask(l fencelock.Line, c fencelock.Standing) bool {
	what := "holds"
	if !c.Granted {
		what = "waits for"
	}
	note := ""
	if c.Note != "" {
		note = " (" + plain(c.Note) + ")"
	}
	fmt.Fprintf(os.Stderr, "%s%s %s %s since %s. It may go on working after this. Break it? [y/N] ",
		plain(c.Owner), note, what, quote(l.Key), clockTime(c.Since))
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
