//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/agent"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/child"
)

const holdHelp = `hold takes NAME for a block of a shell script, as flock(1) does in its third form. It
returns when the name is held, and the name stays held until file descriptor 9 is
closed, by the shell and by everything that inherited it:

  (
    fencelock hold nightly --fd 9 -w 60 || exit
    ./report.sh
  ) 9>>/tmp/nightly.lock

or, for the rest of a script:

  exec 9>>/tmp/nightly.lock
  fencelock hold nightly --fd 9 || exit
  …
  exec 9>&-                     # released here, or when the script ends

The file may be any file on a local disk that is open for writing; nothing is written
to it, and several locks may use the same one. It works in every shell. A process
that is started in the block and lives on keeps the lock: start it with 9>&-.

A process in the background renews the lock, and says on stderr when it is lost. With
--on-loss term (the default) it sends TERM to the process that ran hold, which is the
shell, --grace before the lock ends; with kill, KILL before it ends; with ignore,
nothing. It does not kill what the shell runs. If the process in the background is
killed, nobody tells the shell. fencelock run has neither limit, so prefer it.
--print-token prints the fencing token:

  token=$(fencelock hold nightly --fd 9 --print-token) || exit

Exit codes: 0 held, 75 (or -E) not acquired, 64, 69, 74, 78 as everywhere, 128+N if signal
N ended the waiting.`

// agentSelf is set in the process in the background that holds the lock.
var agentSelf *agent.Agent

func newHold(c *cli) *cobra.Command {
	f := &holdFlags{}
	var fd int
	var token bool
	cmd := &cobra.Command{
		Use:   "hold NAME --fd 9 [flags]",
		Short: "Hold a lock until a file descriptor of the shell is closed",
		Long:  holdHelp,
		Args:  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.name = args[0]
			if err := f.check(cmd); err != nil {
				return err
			}
			if agentSelf != nil {
				return c.runAgent(f, agentSelf)
			}
			if !cmd.Flags().Changed("fd") {
				return usage("--fd is missing: until which file descriptor is closed? write fencelock hold NAME " +
					"--fd 9, with 9>>FILE on the block")
			}
			// Its own errors go to 2, the token to 1: they would get lost with the lock.
			if fd < 3 {
				return usage("--fd %d: 0, 1 and 2 are stdin, stdout and stderr; want 3 or more, as in --fd 9 with "+
					"9>>FILE on the block", fd)
			}
			if err := checkNesting(f.name); err != nil {
				return err
			}
			return c.hold(f, fd, token)
		},
	}
	f.add(cmd)
	f.addKinds(cmd)
	cmd.Flags().IntVar(&fd, "fd", 0, "hold until this file descriptor is closed")
	cmd.Flags().BoolVar(&token, "print-token", false, "print the fencing token")
	return cmd
}

// hold starts the agent and waits until it holds the lock.
func (c *cli) hold(f *holdFlags, fd int, token bool) error {
	watch, err := agent.NewWatch(fd)
	if err != nil {
		return usage("%s: --fd %d: %v", quote(f.name), fd, err)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, child.Forwarded()...)
	started, err := agent.Start(watch, os.Getppid())
	if err != nil {
		return fail(exitNotExecutable, "%s: cannot start the process that holds the lock: %v", quote(f.name), err)
	}
	for {
		select {
		case answer, ok := <-started.Answer:
			switch {
			case !ok:
				return fail(exitUnavailable, "%s: the process in the background ended before it held the lock",
					quote(f.name))
			case answer.Code != 0 || !answer.Held:
				return silently(answer.Code)
			}
			if token {
				// A shell that does not get its token must not go on: the agent releases the
				// lock of a hold that ends without Accept.
				if _, err := fmt.Fprintln(c.out, answer.Token); err != nil {
					started.Cancel()
					return err
				}
			}
			started.Accept()
			return nil
		case s := <-signals:
			if !child.Ends(s) {
				continue
			}
			started.Cancel()
			return leftLine(f.name, s, "")
		}
	}
}

// runAgent holds the lock in the background.
func (c *cli) runAgent(f *holdFlags, a *agent.Agent) error {
	err := c.holdUntilClosed(f, a)
	var quiet silently
	var own *failure
	code := 0
	switch {
	case errors.As(err, &own):
		code = own.code
	case errors.As(err, &quiet):
		code = int(quiet)
	}
	// After the lock was held, nobody listens any more.
	a.Send(agent.Answer{Code: code})
	return err
}

func (c *cli) holdUntilClosed(f *holdFlags, a *agent.Agent) error {
	h, err := c.begin(f, newReport(f))
	if err != nil {
		return err
	}
	defer h.close()
	// The person who waits may give up, and the shell may end.
	stop := context.AfterFunc(a.Waited(), h.cancel)
	l, err := h.acquire()
	if err != nil {
		if a.Waited().Err() != nil {
			return silently(0)
		}
		return err
	}
	if !stop() || !a.Hand(agent.Answer{Held: true, Token: l.Token().String()}) {
		_, unconfirmed := h.release(l)
		return withSecondLine(silently(0), unconfirmed)
	}
	return h.keepOpen(l, a)
}

// keepOpen holds l until the file is closed, or the lease ends, or this process is asked
// to end.
func (h *holding) keepOpen(l *fencelock.Lease, a *agent.Agent) error {
	f, told := h.f, false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-a.Closed():
			lost, unconfirmed := h.release(l)
			if lost != nil && !told {
				return fail(exitLost, "%s (token %s) was lost before its file descriptor was closed: %s",
					quote(f.name), l.Token(), lossText(lost))
			}
			return withSecondLine(nil, unconfirmed)
		case s := <-h.signals:
			if child.Ends(s) {
				_, unconfirmed := h.release(l)
				_, name := child.SignalNumber(s)
				err := fail(exitLost, "%s (token %s): the process in the background got %s and released the lock",
					quote(f.name), l.Token(), name)
				return withSecondLine(err, unconfirmed)
			}
		case <-h.renewed:
		case <-l.Context().Done():
			if !told {
				h.tellShell(l, a, l.Err())
			}
			return silently(exitLost)
		case <-timer.C:
		}
		if l.Err() != nil {
			continue
		}
		left := time.Until(l.Deadline()) - f.notice()
		if left <= 0 && !told && f.loss != lossIgnore {
			told = true
			h.tellShell(l, a, errors.New("it could not be renewed in time"))
		}
		timer.Reset(max(left, 10*time.Millisecond))
	}
}

// tellShell says that the lock is lost, and sends the shell the signal that
// --on-loss names.
func (h *holding) tellShell(l *fencelock.Lease, a *agent.Agent, why error) {
	what := "the shell runs on"
	switch h.f.loss {
	case lossTerm:
		what = a.SignalShell(false)
	case lossKill:
		what = a.SignalShell(true)
	}
	say("%s (token %s) was lost: %s; %s", quote(h.f.name), l.Token(), lossText(why), what)
}
