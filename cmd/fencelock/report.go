package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/terminal"
)

// report is what --report writes: one JSON object. Its fields only ever grow in
// number.
type report struct {
	Name     string      `json:"name"`
	NameB64  string      `json:"name_b64,omitempty"`
	Backend  string      `json:"backend,omitempty"`
	Owner    string      `json:"owner,omitempty"`
	Token    string      `json:"token,omitempty"`
	Who      string      `json:"who"`  // whose exit code it is: "command" or "fencelock"
	Why      reason      `json:"why"`  // exited, signal, lost, stalled, max_hold, done_already, not_started
	Exit     int         `json:"exit"` // of this process
	Command  *commandEnd `json:"command,omitempty"`
	Message  string      `json:"message,omitempty"` // the line on stderr
	Asked    time.Time   `json:"asked"`
	Acquired *time.Time  `json:"acquired,omitempty"`
	Ended    time.Time   `json:"ended"`

	path string
}

// commandEnd is how the command itself ended.
type commandEnd struct {
	Exit   int    `json:"exit"`
	Signal string `json:"signal,omitempty"`
}

const (
	doneAlready reason = "done_already"
	notStarted  reason = "not_started"
)

func newReport(f *holdFlags) *report {
	r := &report{Name: f.name, Why: notStarted, Asked: time.Now(), path: f.report}
	if !utf8.ValidString(f.name) {
		r.NameB64 = base64.StdEncoding.EncodeToString([]byte(f.name))
	}
	return r
}

// check finds out now whether the report can be written later.
func (r *report) check() error {
	if r.path == "" {
		return nil
	}
	// The report replaces the file that a symbolic link leads to, not the link.
	if target, err := filepath.EvalSymlinks(r.path); err == nil {
		r.path = target
	}
	if isDevice(r.path) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(r.path), ".fencelock-report-*")
	if err == nil {
		_ = f.Close()
		err = os.Remove(f.Name())
	}
	if err != nil {
		return usage("--report cannot be written: %v", terminal.Pathless(err))
	}
	if info, err := os.Stat(r.path); err == nil && info.IsDir() {
		return usage("--report %s is a directory", quote(r.path))
	}
	return nil
}

func (r *report) acquired(l *fencelock.Lease) {
	t := time.Now()
	r.Token, r.Acquired = l.Token().String(), &t
}

func (r *report) ended(o outcome) {
	r.Why = o.why
	r.Command = &commandEnd{Exit: o.status.ExitCode(), Signal: o.status.Name}
}

// write ends the report with err, which ends this process, and returns err. The
// file appears at once or not at all.
func (r *report) write(err error) error {
	if r.path == "" {
		return err
	}
	r.Ended = time.Now()
	r.Who, r.Exit = "fencelock", 0
	var quiet silently
	var own *failure
	switch {
	case errors.As(err, &own):
		r.Exit, r.Message = own.code, own.text
	case errors.As(err, &quiet):
		r.Exit = int(quiet)
	}
	if r.Why == byItself || r.Why == bySignal {
		r.Who = "command"
	}
	var b bytes.Buffer
	lost := writeJSON(&b, r, true)
	if lost == nil {
		lost = writeWhole(r.path, b.Bytes())
	}
	if lost != nil {
		say("%s: the report could not be written: %v", quote(r.Name), terminal.Pathless(lost))
	}
	return err
}

// isDevice reports whether path leads to something that is written to and never replaced:
// a device, a pipe, /dev/stdout.
func isDevice(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

func writeWhole(path string, b []byte) error {
	if isDevice(path) {
		return os.WriteFile(path, b, 0o644)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".fencelock-report-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
