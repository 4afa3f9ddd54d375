package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/child"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/terminal"
	"github.com/fencelock/fencelock/storeurl"
)

// The exit codes that are fencelock's own. Everything else is the command's.
const (
	exitUsage         = 64
	exitUnavailable   = 69
	exitOutput        = 74 // EX_IOERR: what was asked for could not be written
	exitNotAcquired   = 75 // or -E; also every other "no": not free, refused
	exitConfig        = 78
	exitLost          = 79
	exitMaxHold       = 124
	exitNotExecutable = 126
	exitNotFound      = 127
)

// failure ends the program with a line and a code that are its own.
type failure struct {
	code  int
	text  string
	after string // a second line, of less weight; or ""
	full  bool   // the server has as many connections as it may have
}

func (f *failure) Error() string { return f.text }

// silently ends the program with a code and no line: the command's own code, or one
// for which a line was printed already.
type silently int

// interrupted is an end by SIGINT, which the shell around this process is to hear of.
type interrupted struct{ error }

func (i interrupted) Unwrap() error { return i.error }

func (s silently) Error() string { return fmt.Sprintf("exit %d", int(s)) }

func fail(code int, format string, args ...any) error {
	return &failure{code: code, text: fmt.Sprintf(format, args...)}
}

func usage(format string, args ...any) error { return fail(exitUsage, format, args...) }

// execute runs the command line and returns the exit code.
func execute() int {
	out := terminal.Stdout()
	c := &cli{out: out}
	err := newRoot(c).Execute()
	if err == nil {
		err = c.refused
	}
	if lost := out.Close(); lost != nil && (err == nil || errors.Is(err, lost)) {
		err = fail(exitOutput, "the output could not be written: %v", terminal.Pathless(lost))
	}
	code := exitOf(err)
	if errors.As(err, new(interrupted)) {
		child.DieInterrupted()
	}
	return code
}

// exitOf is the exit code for err. It prints the line that goes with it.
func exitOf(err error) int {
	var quiet silently
	var own *failure
	switch {
	case err == nil:
		return 0
	case errors.As(err, &quiet):
		return int(quiet)
	case errors.As(err, &own):
		say("%s", own.text)
		if own.after != "" {
			say("%s", own.after)
		}
		return own.code
	}
	// What is left comes from the parsing of verbs.
	say("%s; see fencelock help", err)
	return exitUsage
}

// explain turns an error of the library into a line that says what happened, to
// which name, where, and what to do next.
func explain(s *store, name string, err error) error {
	var held *fencelock.HeldError
	var own *failure
	var denied *storeurl.DeniedError
	var config *storeurl.ConfigError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own
	case errors.As(err, &denied):
		return fail(exitConfig, "%s%s %s", about(name), s, denied)
	case errors.As(err, &config):
		return fail(exitConfig, "%s", config)
	case untrusted(err):
		return fail(exitConfig, "%s%s has a certificate that is not trusted: %s; name its authority by ?ca=FILE "+
			"in the URL or by FENCELOCK_CA", about(name), s, cause(err))
	case errors.As(err, &held):
		return fail(exitNotAcquired, "%s was not acquired: %s, on %s; wait longer with -w, or see fencelock show",
			quote(name), heldBy(held), s)
	case errors.Is(err, fencelock.ErrInvalid):
		_, what, ok := strings.Cut(err.Error(), fencelock.ErrInvalid.Error()+": ")
		if !ok {
			what = err.Error()
		}
		return usage("%s on %s: %s", quote(name), s, what)
	case errors.Is(err, fencelock.ErrDeadlock):
		return deadlock(name)
	case errors.Is(err, driver.ErrPermanent):
		return s.refused(name, err)
	case errors.Is(err, fencelock.ErrNotAcquired):
		return fail(exitNotAcquired, "%s was not acquired on %s; wait longer with -w, or see fencelock show",
			quote(name), s)
	}
	return s.silent(name, err)
}

// untrusted reports whether the certificate of the server was refused. Some clients give the
// text of the error alone.
func untrusted(err error) bool {
	return strings.Contains(err.Error(), (&tls.CertificateVerificationError{Err: errors.New("")}).Error())
}

// cause finds what the store or the network said, without what is around it.
func cause(err error) string {
	if err == nil {
		return "nobody has answered yet"
	}
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, driver.ErrRefused) {
		return "no answer in time"
	}
	_, what, ok := strings.Cut(err.Error(), fencelock.ErrUnavailable.Error()+": ")
	if !ok {
		return err.Error()
	}
	return what
}
