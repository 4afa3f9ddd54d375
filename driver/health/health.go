// Package health describes what the settings of a store mean for locks. A backend that is an
// Examiner reads them, and package doctor reports the findings.
package health

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Examiner is optional: a backend that can read what the settings of its store mean for
// locks.
//
// Examine judges them for leases of ttl. It takes no lock and changes no setting. Settings
// that it may not read become a note. An error says that the store could not be examined at
// all. Examine costs a few requests to each server, and takes a few seconds at most.
type Examiner interface {
	Examine(ctx context.Context, ttl time.Duration) (Result, error)
}

// Result is the result of Examine.
type Result struct {
	Findings []Finding
	// Failover is how long the store grants and renews nothing while another server takes
	// the place of one that died; 0 if none would, or if that is unknown.
	Failover time.Duration
	// ServerTime says that Standing.Since is the time of the store's own clock.
	ServerTime bool
	// Volatile says that a power failure may make the store forget what it has acknowledged.
	Volatile bool
	// Hosts are the hosts of the servers, as the backend knows them.
	Hosts []string
}

// Add appends a finding.
func (e *Result) Add(f Finding) { e.Findings = append(e.Findings, f) }

// Finding is one setting that matters to locks, and its remedy.
type Finding struct {
	Severity Severity
	Code     string // the kind of finding, as in "redis-eviction"; it never changes
	Server   string // where it was read; empty if the store is one server
	Setting  string // as the store calls it
	Value    string // as it was read
	Why      string // what it means for locks: sentences
	// Remedy is the command or the line that fixes it, to be run as it is. Statements follow each
	// other with ", then ", and "; or " separates alternatives.
	Remedy string
}

// String returns the finding in one line.
func (f *Finding) String() string {
	text := f.Setting + " " + f.Value
	if f.Server != "" {
		text = f.Server + ": " + text
	}
	return fmt.Sprintf("%s: %s To mend it: %s", text, f.Why, f.Remedy)
}

// Severity ranks a finding.
type Severity int

// The severities, in rising order.
const (
	// Note is worth knowing.
	Note Severity = iota
	// Warning says that a crash, a failover or a busy hour may cost locks, or block
	// them for long.
	Warning
	// Error says that locks are lost or refused while nothing fails, or that a crash
	// may destroy the store.
	Error
)

// String returns note, warning or error.
func (s Severity) String() string {
	switch s {
	case Note:
		return "note"
	case Warning:
		return "warning"
	case Error:
		return "error"
	}
	return fmt.Sprintf("severity %d", int(s))
}

// OneLine returns text as one line of at most 200 bytes, for Finding.Value.
func OneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:197], "") + "…"
	}
	return text
}
