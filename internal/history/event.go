package history

import (
	"fmt"
	"strings"
	"time"
)

// Op is what happened.
type Op string

// The operations.
const (
	Enter   Op = "enter"   // a process asks for the lock and waits from now on; stamped before the call
	Believe Op = "believe" // the call returned with the lock; for a known handle: it looked, and holds it
	Refused Op = "refused" // the call returned without it: the process waits no longer
	Release Op = "release" // the process calls Release of one handle; stamped before the call
	Left    Op = "left"    // the store confirmed that the claim is gone; stamped after the call
	Loss    Op = "loss"    // the process saw that the lock is lost, or gave up waiting without the store's word
	Crash   Op = "crash"   // the process was killed: it believes nothing and waits for nothing
	Pause   Op = "pause"   // the process was stopped
	Resume  Op = "resume"  // the process goes on
	Write   Op = "write"   // the resource accepted a write under the lock; stamped by the resource
	Denied  Op = "denied"  // the resource refused a write
	Look    Op = "look"    // nothing happened, and the observer still looks
	Doubt   Op = "doubt"   // nobody knows whether the claim is believed, until its next Believe
)

// Kind is how a lock is held.
type Kind string

// The kinds.
const (
	Exclusive Kind = ""  // alone: a mutex, or the writer of a read-write lock
	Shared    Kind = "r" // with other readers
	Permit    Kind = "s" // Weight of Size permits of a semaphore
)

// Event is one line of a history. At and Op are always set. All but Crash, Pause,
// Resume and Look name a Key and a Claim; these four name a Process, or nobody.
type Event struct {
	At      time.Duration // since any one moment, by a clock that all processes share
	Op      Op
	Process string
	Key     string
	Claim   string // one wish of one process; what is handed on inside a process is another claim
	Handle  string // one of several that share the claim by re-entrancy; may be empty if there is one
	Kind    Kind
	Weight  int64 // of a Permit; 0 counts as 1
	Size    int64 // of the semaphore
	Token   int64 // 0 where there is none
}

func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s", e.At, e.Op)
	if e.Process != "" {
		b.WriteString(" by " + e.Process)
	}
	if e.Key != "" {
		fmt.Fprintf(&b, " of %q", e.Key)
	}
	if e.Token != 0 {
		fmt.Fprintf(&b, " token %d", e.Token)
	}
	return b.String()
}

func (e Event) weight() int64 { return max(e.Weight, 1) }
