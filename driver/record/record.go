// Package record defines the record that a store keeps of grants. A backend with a history implements
// Store; package history writes and reads it.
package record

import (
	"cmp"
	"context"
	"time"
)

// Store is implemented by a backend that keeps a history of grants in its store.
type Store interface {
	// Record adds es to the histories of their keys. What an entry says replaces what the
	// history knew of that grant, so the same entries may be written again. No
	// two of es are of the same grant. Then Record forgets what keep does not keep, of these
	// keys at least.
	Record(ctx context.Context, es []Entry, keep Bounds) error

	// History returns what is known of the last n grants of key, by token, the newest first.
	History(ctx context.Context, key string, n int) ([]Entry, error)
}

// Bounds say how much of a history is kept.
type Bounds struct {
	Keep int           // grants of each key; the store may keep up to twice as many
	For  time.Duration // since the last entry of a grant, by the clock of the store
}

// Entry is the record of one grant. A field that is not known is zero. Times are those of the
// process that wrote them.
type Entry struct {
	Key     string    `json:"-"`
	Token   int64     `json:"token"`
	Owner   string    `json:"owner,omitzero"`
	Note    string    `json:"note,omitzero"`
	Kind    string    `json:"kind,omitzero"`
	Permits int64     `json:"permits,omitzero"`
	Asked   time.Time `json:"asked,omitzero"`
	Granted time.Time `json:"granted,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	End     string    `json:"end,omitzero"` // how it ended, in a word
	Reason  string    `json:"reason,omitzero"`
	// An operator broke a claim by this token. Its holder may have had a later one.
	Broken    time.Time `json:"broken,omitzero"`
	BrokenBy  string    `json:"broken_by,omitzero"`
	BrokenFor string    `json:"broken_for,omitzero"`

	Lost uint64 `json:"lost,omitzero"` // entries that its process could not write before this one
}

// Merge adds to e what a later entry of the same grant says.
func (e *Entry) Merge(later Entry) {
	e.Owner, e.Note = cmp.Or(later.Owner, e.Owner), cmp.Or(later.Note, e.Note)
	e.Kind, e.Permits = cmp.Or(later.Kind, e.Kind), cmp.Or(later.Permits, e.Permits)
	e.Asked, e.Granted = cmp.Or(later.Asked, e.Asked), cmp.Or(later.Granted, e.Granted)
	e.Ended, e.End = cmp.Or(later.Ended, e.Ended), cmp.Or(later.End, e.End)
	e.Reason, e.Broken = cmp.Or(later.Reason, e.Reason), cmp.Or(later.Broken, e.Broken)
	e.BrokenBy, e.BrokenFor = cmp.Or(later.BrokenBy, e.BrokenBy), cmp.Or(later.BrokenFor, e.BrokenFor)
	e.Lost = cmp.Or(later.Lost, e.Lost)
}
