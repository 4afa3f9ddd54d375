// Package note is the form in which fencelock serve keeps what it has to know of a claim: in the
// note of the claim in the store, before the text of the client.
package note

import (
	"strings"
	"time"
)

// Note is the note of a claim.
type Note struct {
	Slot *time.Time // of a claim of once; the zero time is once for ever
	Text string     // of the client
}

const slotPrefix = "slot="

// String returns n as the store keeps it.
func (n Note) String() string {
	if n.Slot == nil {
		return n.Text
	}
	stored := slotPrefix + Slot(*n.Slot)
	if n.Text != "" {
		stored += " " + n.Text
	}
	return stored
}

// Parse takes apart what the store keeps. A note that fencelock serve did not write is text alone.
func Parse(stored string) Note {
	rest, ok := strings.CutPrefix(stored, slotPrefix)
	if !ok {
		return Note{Text: stored}
	}
	slot, text, _ := strings.Cut(rest, " ")
	t, ok := ReadSlot(slot)
	if !ok {
		return Note{Text: stored}
	}
	return Note{&t, text}
}

// Slot returns the text of a slot: a time in UTC, or "ever".
func Slot(t time.Time) string {
	if t.IsZero() {
		return "ever"
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// ReadSlot reads the text of a slot.
func ReadSlot(text string) (time.Time, bool) {
	if text == "ever" {
		return time.Time{}, true
	}
	t, err := time.Parse(time.RFC3339, text)
	return t.UTC(), err == nil && !t.IsZero()
}
