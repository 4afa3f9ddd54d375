package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

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

// addRevoke declares the flag that has a command hear of a break --ask.
func (f *holdFlags) addRevoke(cmd *cobra.Command) {
	cmd.Flags().Var(&f.onRevoke, "on-revoke", "what the command gets when fencelock break --ask asks for the lock "+
		"(default: nothing, and nobody looks for that)")
}

// revoked is closed when somebody asks for the lock, or nil without --on-revoke.
func (j *job) revoked() <-chan struct{} {
	if j.f.onRevoke.signal == nil {
		return nil
	}
	return j.lease.Revoked()
}

// passRevocation tells the command, unless it is ending, that somebody asks for the lock.
func (j *job) passRevocation() {
	if j.phase != running {
		return
	}
	by, why := j.lease.Revocation(), ""
	if by.Note != "" {
		why = " (" + plain(by.Note) + ")"
	}
	say("%s: %s asks for it%s; the command gets %s", quote(j.f.name), plain(by.Owner), why, &j.f.onRevoke)
	j.c.Signal(j.f.onRevoke.signal)
}
