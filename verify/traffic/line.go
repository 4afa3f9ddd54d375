package traffic

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/fencelock/fencelock/internal/history"
)

// Op is what a line tells.
type Op string

// What users write. Call, Again and Release come before an operation, the others after
// one.
const (
	Call        Op = "call"        // the user asks for the lock
	Held        Op = "held"        // it has it, and the lease said so after the stamp
	Refused     Op = "refused"     // it did not get it, and nothing of it is left
	GaveUp      Op = "gaveup"      // it did not get it, or does not know; the store may not know yet either
	Late        Op = "late"        // it got it, and the lease was over before it could look
	Look        Op = "look"        // the lease said after the stamp that it is held
	Again       Op = "again"       // the user takes the lock that it holds once more
	Renewed     Op = "renewed"     // a renewal by hand was answered
	Told        Op = "told"        // the context of the lease has ended, and the lease is over
	Lost        Op = "lost"        // the lease says that it is over
	Release     Op = "release"     // the user gives one handle back; the lease said after the stamp that it is held
	Released    Op = "released"    // and the store, or the gate, has taken it
	Unconfirmed Op = "unconfirmed" // and nobody has answered
	Break       Op = "break"       // a user ends the claim whose span is Token to Token+Span
	Broke       Op = "broke"       // and what came of it
	Added       Op = "added"       // the resource has acknowledged the write of this claim
	NotAdded    Op = "notadded"    // it refused it, or nobody knows
	Odd         Op = "odd"         // an answer that no rule allows; Text says which
	Tick        Op = "tick"        // a timer of this process, or the disk with a line, was late by Ns
)

// What others write.
const (
	Crash   Op = "crash"   // the process was killed, and has ended
	Stop    Op = "stop"    // the process is about to be stopped
	Resume  Op = "resume"  // the process goes on
	Begin   Op = "begin"   // a fault begins; Text is its name
	End     Op = "end"     // and has been healed
	Forgot  Op = "forgot"  // the store has lost what it knew
	Started Op = "started" // a worker was started
	Wrote   Op = "wrote"   // the resource accepted a write
	Denied  Op = "denied"  // the resource refused a read or a write
	Final   Op = "final"   // Members are what a set holds in the end
)

// Line is one line of a history. At and Op are always set.
type Line struct {
	At      int64        `json:"at"` // ns, CLOCK_MONOTONIC
	Op      Op           `json:"op"`
	Proc    string       `json:"p,omitempty"` // worker.life: w2.5
	Key     string       `json:"k,omitempty"`
	Claim   string       `json:"c,omitempty"`
	Handle  string       `json:"h,omitempty"`
	Kind    history.Kind `json:"kind,omitempty"`
	Weight  int64        `json:"weight,omitempty"`
	Size    int64        `json:"size,omitempty"`
	Token   int64        `json:"t,omitempty,string"`
	Span    int64        `json:"span,omitempty"`
	By      int64        `json:"by,omitempty"`    // of a Call: when its context ends
	Until   int64        `json:"until,omitempty"` // of a lease: its deadline as the library tells it
	Ns      int64        `json:"ns,omitempty"`
	Base    int64        `json:"base,omitempty"`    // of a write: the version that it was made from
	Version int64        `json:"version,omitempty"` // of a write: the one that it made
	Outage  bool         `json:"outage,omitempty"`  // of a fault: nobody need make progress while it lasts
	Members []string     `json:"members,omitempty"`
	Text    string       `json:"text,omitempty"`
}

// Recorder appends lines to a file. It may be used from many goroutines.
type Recorder struct {
	f    *os.File
	proc string

	mu  sync.Mutex
	err error
}

// NewRecorder appends to the file at path what proc tells.
func NewRecorder(path, proc string) (*Recorder, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &Recorder{f: f, proc: proc}, nil
}

// Write writes l with one write(2). Without a stamp it gets the present. If the disk was slow, that
// is in the history too: whoever writes a line does nothing else meanwhile.
func (r *Recorder) Write(l Line) {
	begun := Now()
	l.At = cmp.Or(l.At, begun)
	r.append(l)
	if now := Now(); now-begun > int64(lateness) {
		r.append(Line{At: now, Op: Tick, Ns: now - begun})
	}
}

func (r *Recorder) append(l Line) {
	l.Proc = cmp.Or(l.Proc, r.proc)
	b, err := json.Marshal(l)
	if err == nil {
		_, err = r.f.Write(append(b, '\n'))
	}
	if err != nil {
		r.mu.Lock()
		r.err = fmt.Errorf("recording %s: %w", l.Op, err)
		r.mu.Unlock()
	}
}

// Close ends the file, and says if a line was not written.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.err, r.f.Close())
}

// ReadAll reads all files of a history that lie in dir, and returns their lines in the order
// of their stamps; those of one file that share a stamp keep their order. A last line
// that was cut short is left out.
func ReadAll(dir string) ([]Line, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no history in %s", dir)
	}
	var all []Line
	for _, name := range names { // in order, see Glob
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		whole := text[:bytes.LastIndexByte(text, '\n')+1]
		for d := json.NewDecoder(bytes.NewReader(whole)); d.More(); {
			var l Line
			d.DisallowUnknownFields()
			if err := d.Decode(&l); err != nil {
				return nil, fmt.Errorf("%s at byte %d: %w", name, d.InputOffset(), err)
			}
			all = append(all, l)
		}
	}
	slices.SortStableFunc(all, func(a, b Line) int { return cmp.Compare(a.At, b.At) })
	return all, nil
}
