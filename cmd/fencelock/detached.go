package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
)

const acquireHelp = `acquire takes NAME and ends; the name stays taken. It prints a handle, with which renew,
check and release work from any process and any machine, or writes it to a file:

  fencelock acquire deploy --ttl 10m --handle deploy.handle || exit
  ./first-step.sh
  fencelock renew --handle deploy.handle || exit      # another ten minutes from now
  ./second-step.sh
  fencelock release --handle deploy.handle

Nobody renews the lock by itself, and nobody is told when it ends: take a --ttl that is
longer than a step, and let check or renew say before each step that the lock is still
held. Where the work is one command, fencelock run does all that, so prefer it.

Anybody with the handle can release the lock. Other users may see the arguments of a
process: prefer --handle FILE, which has mode 0600, or --handle - for stdin.

It works on SQLite, PostgreSQL, MariaDB, Redis and etcd. Exit codes: 0 held, 75 (or -E)
not acquired, 64, 69, 74, 78 as everywhere; of renew, check and release 79: the lock has
ended, or somebody else has adopted it.`

// acquireTTL is the lease of acquire: nothing renews it.
const acquireTTL = 5 * time.Minute

func newAcquire(c *cli) *cobra.Command {
	f := &holdFlags{}
	var file string
	cmd := &cobra.Command{
		Use:   "acquire NAME [flags]",
		Short: "Take a lock and end; a handle renews and releases it",
		Long:  acquireHelp,
		Args:  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.name = args[0]
			if err := f.check(cmd); err != nil {
				return err
			}
			if file == "-" {
				return usage("--handle - is for reading; acquire prints the handle if --handle is left out")
			}
			if _, err := os.Lstat(file); file != "" && err == nil {
				return usage("%s exists, and may be the handle of a lock that is held: release it with "+
					"fencelock release --handle %s, or name another file", quote(file), plain(file))
			}
			if err := checkNesting(f.name); err != nil {
				return err
			}
			return c.acquire(f, file)
		},
	}
	f.ttl.d = acquireTTL
	f.addWaiting(cmd)
	f.addKinds(cmd)
	cmd.Flags().StringVar(&file, "handle", "", "write the handle to this new file instead of printing it")
	return cmd
}

func (c *cli) acquire(f *holdFlags, file string) error {
	h, err := c.begin(f, newReport(f))
	if err != nil {
		return err
	}
	defer h.close()
	l, err := h.acquire()
	if err != nil {
		return err
	}
	handle, err := h.Detach(context.Background(), l)
	if err != nil {
		_ = l.Release(context.Background())
		return explain(h.store, f.name, err)
	}
	if file == "" {
		_, err = fmt.Fprintln(c.out, handle)
	} else {
		err = writeHandle(file, handle)
	}
	if err != nil {
		// Nobody has the handle, so nobody can use the lock.
		_ = h.Detached(handle).Release(context.Background())
	}
	return err
}

func writeHandle(file string, h fencelock.Handle) error {
	w, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(w, h)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return fail(exitOutput, "the handle could not be written to %s: %v; the lock was released", quote(file), err)
	}
	return nil
}

// handleFlags say where a verb finds its handle.
type handleFlags struct{ file string }

// handleVerb is a verb that works on the lock of a handle.
func (c *cli) handleVerb(
	use, short, long string, do func(ctx context.Context, s *session, h fencelock.Handle) error,
) (*cobra.Command, *handleFlags) {
	f := &handleFlags{}
	cmd := &cobra.Command{
		Use:   use + " (--handle FILE | HANDLE)",
		Short: short,
		Long:  long,
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			h, err := f.read(use, args)
			if err != nil {
				return err
			}
			ctx := context.Background()
			s, err := c.look(ctx, h.Key())
			if err != nil {
				return err
			}
			defer s.close()
			return s.explainHandle(h, do(ctx, s, h))
		},
	}
	cmd.Flags().StringVar(&f.file, "handle", "", "read the handle from this file; - is stdin")
	return cmd, f
}

// read returns the handle, from its file or from the arguments.
func (f *handleFlags) read(verb string, args []string) (fencelock.Handle, error) {
	var text string
	switch {
	case f.file == "" && len(args) == 1:
		text = args[0]
	case f.file == "" || len(args) > 0:
		return "", usage("%s wants one handle: --handle FILE, --handle - for stdin, or the handle itself", verb)
	case f.file == "-":
		b, err := io.ReadAll(io.LimitReader(os.Stdin, 1024))
		if err != nil {
			return "", usage("the handle could not be read from stdin: %v", err)
		}
		text = string(b)
	default:
		b, err := os.ReadFile(f.file)
		if err != nil {
			return "", usage("the handle could not be read: %v", err)
		}
		text = string(b)
	}
	h := fencelock.Handle(text)
	if h.Key() == "" {
		hint := ""
		if _, err := os.Stat(text); err == nil && f.file == "" {
			hint = "; for the handle in a file of that name, give --handle " + quote(text)
		}
		return "", usage("this is no handle: it comes from fencelock acquire, and begins with fl1.%s", hint)
	}
	return h, nil
}

// explainHandle says what became of the lock of h.
func (s *session) explainHandle(h fencelock.Handle, err error) error {
	var own *failure
	if errors.Is(err, fencelock.ErrLost) && !errors.As(err, &own) {
		return fail(exitLost, "%s on %s is not held by this handle any more: %s",
			quote(h.Key()), s.store, lossText(err))
	}
	return explain(s.store, h.Key(), err)
}

func newRenew(c *cli) *cobra.Command {
	var ttl seconds
	cmd, _ := c.handleVerb("renew", "Extend a lock that acquire took",
		"renew lets the lock of a handle last for its --ttl from now on. See fencelock acquire.\n"+
			"If a break --notice ends the lock before, it says so on stderr, and ends with 0.",
		func(ctx context.Context, s *session, h fencelock.Handle) error {
			if ttl.set && ttl.d < time.Millisecond {
				return usage("--ttl is %v; want how long the lock is to last from now", ttl.d)
			}
			left, notice, err := s.Detached(h).Renew(ctx, ttl.d)
			if notice != nil {
				say("%s will be broken in %s%s; finish the work and release it", quote(h.Key()),
					span(left.Round(time.Second)), because(notice.Reason))
			}
			return err
		})
	cmd.Flags().Var(&ttl, "ttl", "how long the lock lasts from now (default: as long as acquire said)")
	return cmd
}

func newRelease(c *cli) *cobra.Command {
	var f *handleFlags
	var cmd *cobra.Command
	cmd, f = c.handleVerb("release", "Release a lock that acquire took",
		"release releases the lock of a handle, and removes the --handle file. See fencelock acquire.",
		func(ctx context.Context, s *session, h fencelock.Handle) error {
			err := s.Detached(h).Release(ctx)
			if f.file != "" && f.file != "-" && (err == nil || errors.Is(err, fencelock.ErrLost)) {
				_ = os.Remove(f.file) // it is of no use any more
			}
			return err
		})
	return cmd
}

func newCheck(c *cli) *cobra.Command {
	cmd, _ := c.handleVerb("check", "Is the lock of a handle still held?",
		"check says whether the lock of a handle is held, its token, and how much is left of it.\n"+
			"See fencelock acquire.",
		func(ctx context.Context, s *session, h fencelock.Handle) error {
			asJSON, err := c.json()
			if err != nil {
				return err
			}
			held, err := s.Detached(h).Check(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, viewOf(fencelock.Line{Key: h.Key(), Claims: []fencelock.Standing{held}}), true)
			}
			_, err = fmt.Fprintf(c.out, "%s is held with token %s, %s left\n",
				quote(h.Key()), held.Token, span(held.Left))
			return err
		})
	c.outputFlag(cmd)
	return cmd
}
