package note_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/note"
)

func TestNoteIsReadAsItWasWritten(t *testing.T) {
	at := time.Date(2026, 11, 25, 13, 0, 0, 0, time.UTC)
	for stored, n := range map[string]note.Note{
		"":                                   {},
		"nightly":                            {Text: "nightly"},
		"slot=2026-11-25T13:00:00Z":          {Slot: &at},
		"slot=2026-11-25T13:00:00Z a  night": {Slot: &at, Text: "a  night"},
		"slot=ever by hand":                  {Slot: &time.Time{}, Text: "by hand"},
		"slot=none slot=ever":                {Text: "slot=ever"},
		"slot=none request=ABCDEFGH":         {Text: "request=ABCDEFGH"},
		"request=ABCDEFGH slot=none slot=a":  {Request: "ABCDEFGH", Text: "slot=a"},
		"request=ABCDEFGH":                   {Request: "ABCDEFGH"},
		"request=ABCDEFGH a night":           {Request: "ABCDEFGH", Text: "a night"},
		"request=ABCDEFGH slot=ever a night": {Request: "ABCDEFGH", Slot: &time.Time{}, Text: "a night"},
	} {
		steps.Same(t, "the text", n.String(), stored)
		got := note.Parse(stored)
		if got.Text != n.Text || got.Request != n.Request || (got.Slot == nil) != (n.Slot == nil) || got.Slot != nil && !got.Slot.Equal(*n.Slot) {
			t.Errorf("%q is read as %v", stored, got)
		}
	}
	for _, text := range []string{"slot=one of many", "request= a night"} { // of other programs
		if got := note.Parse(text); got != (note.Note{Text: text}) {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
