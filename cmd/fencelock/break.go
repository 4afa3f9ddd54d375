package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/limit"
)

func newBreak(c *cli) *cobra.Command {
	var f breakFlags
	var token string
	cmd := &cobra.Command{
		Use:   "break NAME --token N",
		Short: "End a grant, or remove a waiter from the line",
		Long: `break ends the grant of NAME that has this token (fencelock show NAME prints it). It
refuses if that grant has ended already, so it never hits the next holder by mistake.
The holder is told, with the reason. Until then it may go on writing while the next
holder has the lock already: let what is written to check the token.

With --notice 30s the holder keeps NAME for that long, and is told at once, or with its next
renewal where the store does not push. A command under run or once gets TERM, or the signal
of --on-revoke; a program waits for Lease.Revoked. If it has not released NAME by then, the
store ends its grant, whatever renews it. break itself returns at once. Another break with a
shorter --notice does not shorten it, and one without --notice ends the grant now.

With --delay 10s nobody gets NAME for that long after its grant was broken, so that the last
writes of its holder land before anybody else begins. A holder that releases NAME within its
notice opens it at once. Another break without --delay, or with a shorter one, leaves that as
it is; --delay 0 opens NAME at once. ZooKeeper and a quorum cannot do this.

It wants a yes first. Without a terminal to ask on, it wants --yes.`,
		Args: oneName,
		RunE: func(_ *cobra.Command, args []string) error {
			n, err := fence.Parse(token)
			if err != nil || n == 0 {
				return usage("--token %s: want the token of the grant to end, as fencelock show %s prints it",
					quote(token), plain(args[0]))
			}
			f.token = n
			switch {
			case len(f.reason) > limit.Note:
				return usage("--reason has %d bytes; at most %d", len(f.reason), limit.Note)
			case f.notice.set && f.notice.d == 0:
				return usage("--notice 0 leaves the holder no time; leave it out to end the grant now")
			case !f.yes && !isTerminal(os.Stdin):
				return usage("there is no terminal to ask on whether to break %s; add --yes", quote(args[0]))
			}
			return c.breakGrant(args[0], f)
		},
	}
	cmd.Flags().StringVar(&token, "token", "", "the token of the grant to end")
	cmd.Flags().Var(&f.notice, "notice", "tell the holder, and end its grant only after this long")
	cmd.Flags().Var(&f.delay, "delay", "keep the name closed for this long after the grant was broken")
	cmd.Flags().StringVar(&f.reason, "reason", "", "what the holder is told")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not want a yes on the terminal")
	return cmd
}

type breakFlags struct {
	token  fence.Token
	notice seconds
	delay  seconds
	reason string
	yes    bool
}

// how returns what Break is to do.
func (f *breakFlags) how() fencelock.Break {
	b := fencelock.Break{Reason: f.reason, Notice: f.notice.d} // with the delay of the lease, if it has one
	if f.delay.set {
		b.Delay = cmp.Or(f.delay.d, -1)
	}
	return b
}

func (c *cli) breakGrant(name string, f breakFlags) error {
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
	claim, ok := withToken(line, f.token)
	if !ok {
		return s.notThere(line, f.token)
	}
	if claim.Lingering && !f.delay.set {
		say("%s: the grant with token %s has ended already, and the name stays closed for %s; --delay 0 opens it",
			quote(name), f.token, span(claim.Left))
		return nil
	}
	if !f.yes && !ask(line, claim) {
		return fail(exitNotAcquired, "%s: nothing was changed", quote(name))
	}
	err = s.Break(ctx, name, f.token, f.how())
	switch {
	case errors.Is(err, fencelock.ErrNoClaim):
		return s.notThere(line, f.token)
	case err != nil:
		return explain(s.store, name, err)
	}
	what := "was ended"
	if f.notice.d > 0 && claim.Granted && !claim.Lingering {
		what = "ends in " + span(f.notice.d) + ", or sooner if its holder releases it"
	}
	say("%s: the grant with token %s of %s %s", quote(name), f.token, plain(claim.Owner), what)
	return nil
}

func withToken(l fencelock.Line, token fence.Token) (fencelock.Standing, bool) {
	for _, c := range l.Claims {
		if c.HasToken(token) {
			return c, true
		}
	}
	return fencelock.Standing{}, false
}

func (s *session) notThere(l fencelock.Line, token fence.Token) error {
	now := "nobody holds it"
	if len(l.Claims) > 0 {
		now = fmt.Sprintf("its token is %s now, %s", l.Claims[0].Token, heldBy(headOf(l)))
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
		note = " (" + noteText(c.Note) + ")"
	}
	fmt.Fprintf(os.Stderr, "%s%s %s %s since %s. It may go on working after this. Break it? [y/N] ",
		plain(c.Owner), note, what, quote(l.Key), clockTime(c.Since))
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
