// Package note is the form in which fencelock serve keeps what it has to know of a claim: in the
// note of the claim in the store, before the text of the client.
package note

import (
	"strings"
	"time"
)

// Note is the note of a claim.
type Note struct {
	Request string     // of a store that does not find claims by their IDs: names the request of the claim
	Slot    *time.Time // of a claim of once; the zero time is once forever
	Text    string     // of the client
}

const (
	requestPrefix = "request="
	slotPrefix    = "slot="
	noSlot        = "none"
)

// String returns n as the store keeps it.
func (n Note) String() string {
	var parts []string
	if n.Request != "" {
		parts = append(parts, requestPrefix+n.Request)
	}
	switch {
	case n.Slot != nil:
		parts = append(parts, slotPrefix+Slot(*n.Slot))
	case strings.HasPrefix(n.Text, slotPrefix), strings.HasPrefix(n.Text, requestPrefix):
		parts = append(parts, slotPrefix+noSlot) // the text is the client's
	}
	if n.Text != "" {
		parts = append(parts, n.Text)
	}
	return strings.Join(parts, " ")
}

// Parse takes apart what the store keeps. A note that fencelock serve did not write is text alone.
func Parse(stored string) Note {
	n := Note{Text: stored}
	if request, rest, ok := cut(n.Text, requestPrefix); ok && request != "" {
		n.Request, n.Text = request, rest
	}
	if text, rest, ok := cut(n.Text, slotPrefix); ok {
		if t, ok := ReadSlot(text); ok {
			n.Slot, n.Text = &t, rest
		} else if text == noSlot {
			n.Text = rest
		}
	}
	return n
}

// cut returns the word after prefix, and what follows it.
func cut(text, prefix string) (word, rest string, ok bool) {
	text, ok = strings.CutPrefix(text, prefix)
	word, rest, _ = strings.Cut(text, " ")
	return word, rest, ok
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
