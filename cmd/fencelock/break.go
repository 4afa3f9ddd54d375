package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
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

With --ask 30s the holder is asked to release NAME, and its grant is broken only if it has
not after that time. A run with --on-revoke hears of it, and a program that waits for
Lease.Revoked; any other holder is not told before. Ctrl-C takes the request back.

With --delay 10s nobody gets NAME for that long after its grant was broken, so that the last
writes of its holder land before anybody else begins. Another break without --delay, or
with a shorter one, leaves that as it is; --delay 0 opens NAME at once. ZooKeeper and a
quorum cannot do this.

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
			case len(f.reason) > driver.MaxNote:
				return usage("--reason has %d bytes; at most %d", len(f.reason), driver.MaxNote)
			case f.ask.set && f.ask.d == 0:
				return usage("--ask 0 leaves the holder no time; leave it out to break the grant at once")
			}
			if !f.yes && !isTerminal(os.Stdin) {
				return usage("there is no terminal to ask on whether to break %s; add --yes", quote(args[0]))
			}
			return c.breakGrant(args[0], f)
		},
	}
	cmd.Flags().StringVar(&token, "token", "", "the token of the grant to end")
	cmd.Flags().Var(&f.ask, "ask", "ask the holder to release it, and break it only after this long")
	cmd.Flags().Var(&f.delay, "delay", "keep the name closed for this long after the grant was broken")
	cmd.Flags().StringVar(&f.reason, "reason", "", "what the holder is told")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not want a yes on the terminal")
	return cmd
}

type breakFlags struct {
	token  fence.Token
	ask    seconds
	delay  seconds
	reason string
	yes    bool
}

// closed returns the delay for Break and Revoke.
func (f *breakFlags) closed() time.Duration {
	if !f.delay.set {
		return 0 // that of the lease, if it has one
	}
	return cmp.Or(f.delay.d, -1)
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
	what := "was ended"
	if f.ask.set && claim.Granted {
		what, err = s.revoke(name, f)
	} else {
		err = s.Break(ctx, name, f.token, f.reason, f.closed())
	}
	switch {
	case errors.Is(err, fencelock.ErrNoClaim):
		return s.notThere(line, f.token)
	case errors.As(err, new(interrupted)):
		return err
	case err != nil:
		return explain(s.store, name, err)
	}
	say("%s: the grant with token %s of %s %s", quote(name), f.token, plain(claim.Owner), what)
	return nil
}

// revoke asks the holder first, and says how the grant ended.
func (s *session) revoke(name string, f breakFlags) (what string, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	begun := time.Now()
	broken, err := s.Revoke(ctx, name, f.token, f.reason, f.ask.d, f.closed())
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled) && !errors.Is(err, fencelock.ErrUnavailable):
		return "", interrupted{fail(130, "%s: interrupted; the request was taken back, and nothing was broken",
			quote(name))}
	case broken:
		return "did not end in " + span(f.ask.d) + ", and was broken", err
	}
	return "ended after " + span(time.Since(begun)) + ", without force", err
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
