package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/child"
)

// signalFlag is the name of a signal, with or without SIG. The zero value is none.
type signalFlag struct{ signal os.Signal }

func (s *signalFlag) Type() string { return "signal" }

func (s *signalFlag) String() string {
	if s.signal == nil {
		return ""
	}
	_, name := child.SignalNumber(s.signal)
	return name
}

func (s *signalFlag) Set(text string) error {
	if s.signal = child.SignalNamed(text); s.signal == nil {
		return errors.New("want the name of a signal, as in TERM, HUP or USR1")
	}
	return nil
}

// addRevoke declares the flag for the notice of a fencelock break.
func (f *holdFlags) addRevoke(cmd *cobra.Command) {
	cmd.Flags().Var(&f.onRevoke, "on-revoke", "what the command gets when fencelock break --notice tells of the end "+
		"of the lock (default TERM; nothing with --on-loss ignore)")
}

// passRevocation tells the command, unless it is ending, that its lock was given notice.
func (j *job) passRevocation() {
	if j.phase != running {
		return
	}
	s, what := j.f.onRevoke, "the command runs on"
	if s.signal == nil && j.f.loss != lossIgnore {
		s.signal = child.SignalNamed("TERM")
	}
	if s.signal != nil {
		what = "the command gets " + s.String()
	}
	reason, end := j.lease.Revocation()
	left := time.Until(end).Round(time.Second)
	say("%s will be broken in %s%s; %s", quote(j.f.name), span(left), because(reason), what)
	if s.signal != nil {
		j.c.Signal(s.signal)
	}
}

// because adds the reason of a break, if there is one, to what is said.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + plain(reason) + ")"
}

// notRenewed returns why the lease is about to end: by a notice, or because no renewal has succeeded.
func (j *job) notRenewed() error {
	reason, end := j.lease.Revocation()
	if end.IsZero() || end.Sub(j.lease.Deadline()) > j.f.margin() {
		return errors.New("it could not be renewed in time")
	}
	return fmt.Errorf("%w: %s", fencelock.ErrBroken, cmp.Or(plain(reason), "an operator broke it"))
}
