package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/note"
	"github.com/fencelock/fencelock/internal/terminal"
)

// lineView is a line as -o json shows it. Fields only ever grow in number.
type lineView struct {
	Name    string      `json:"name"`
	NameB64 string      `json:"name_b64,omitempty"` // if the name is not UTF-8
	Kind    string      `json:"kind"`               // "lock", "semaphore"; "" if nobody uses it
	Size    int64       `json:"size,omitempty"`     // of a semaphore
	Holders []claimView `json:"holders"`
	Waiters []claimView `json:"waiters"`

	// Only show has these.
	LastToken *fence.Token `json:"last_token,omitempty"`
	LastRun   *runView     `json:"last_run,omitempty"`
}

type claimView struct {
	Token     fence.Token `json:"token"`
	Owner     string      `json:"owner"`
	Note      string      `json:"note"`
	Slot      string      `json:"slot,omitempty"` // of once over HTTP: a time, or "ever"
	Since     time.Time   `json:"since"`
	LeftMS    int64       `json:"left_ms"`
	Shared    bool        `json:"shared,omitempty"`    // of a lock: others may share it, too
	Permits   int64       `json:"permits,omitempty"`   // of a semaphore
	Lingering bool        `json:"lingering,omitempty"` // its holder left or was broken; the name stays taken
	Notice    string      `json:"notice,omitempty"`    // why an operator ends it after left_ms, whatever renews it
}

// runView is the last slot that once finished.
type runView struct {
	Slot  *time.Time `json:"slot"`
	Done  time.Time  `json:"done"`
	Owner string     `json:"owner"`
}

func viewOf(l fencelock.Line) lineView {
	v := lineView{Name: l.Key, Holders: []claimView{}, Waiters: []claimView{}}
	if !utf8.ValidString(l.Key) {
		v.NameB64 = base64.StdEncoding.EncodeToString([]byte(l.Key))
	}
	for _, c := range l.Claims {
		view := claimView{
			Token: c.Token, Owner: c.Owner, Note: note.Parse(c.Note).Text, Slot: slotOf(c.Note),
			Since: c.Since.UTC(), LeftMS: max(c.Left, 0).Milliseconds(), Lingering: c.Lingering, Notice: c.Reason,
		}
		if c.Kind == "permits" {
			v.Kind = cmp.Or(v.Kind, "semaphore")
			v.Size = max(v.Size, c.Size)
			view.Permits = c.Permits
		} else {
			v.Kind = cmp.Or(v.Kind, "lock")
			view.Shared = c.Kind == "shared"
		}
		if c.Granted {
			v.Holders = append(v.Holders, view)
		} else {
			v.Waiters = append(v.Waiters, view)
		}
	}
	return v
}

// addMemory adds what a line remembers apart from its claims.
func (v *lineView) addMemory(l fencelock.Line) {
	if l.Last > 0 {
		t := l.Last
		v.LastToken = &t
	}
	if !l.Done.IsZero() {
		v.LastRun = &runView{Done: l.Done.UTC(), Owner: l.DoneBy}
		if !l.Slot.IsZero() {
			slot := l.Slot.UTC()
			v.LastRun.Slot = &slot
		}
	}
}

func byName(a, b fencelock.Line) int { return cmp.Compare(a.Key, b.Key) }

var heading = []string{"NAME", "STATE", "OWNER", "SINCE", "AGE", "LEFT", "TOKEN", "NOTE"}

// rows shows a line as rows of a table, one per claim.
func rows(l fencelock.Line, now time.Time) [][]string {
	var all [][]string
	waiting := 0
	for _, c := range l.Claims {
		if !c.Granted {
			waiting++
		}
		all = append(all, []string{
			plain(l.Key), state(c, waiting), plain(c.Owner), clockTime(c.Since), span(now.Sub(c.Since)),
			span(c.Left), c.Token.String(), noteText(c.Note),
		})
	}
	return all
}

// slotOf is the slot of a claim of once over HTTP, or "".
func slotOf(stored string) string {
	n := note.Parse(stored)
	if n.Slot == nil {
		return ""
	}
	return note.Slot(*n.Slot)
}

// noteText shows the note of a claim, after the slot of one of once over HTTP.
func noteText(stored string) string { return shownNote(slotOf(stored), note.Parse(stored).Text) }

func shownNote(slot, text string) string {
	if slot == "" {
		return plain(text)
	}
	return strings.TrimSuffix("slot "+slot+": "+plain(text), ": ")
}

// state says in a word or two what a claim does. position is that among the waiters.
func state(c fencelock.Standing, position int) string {
	how := ""
	switch c.Kind {
	case "permits":
		how = " " + strconv.FormatInt(c.Permits, 10) + "/" + strconv.FormatInt(c.Size, 10)
	case "shared":
		how = " shared"
	}
	return doing(c, "held", "waits #"+strconv.Itoa(position)) + how
}

// doing says what a claim does. The words for one that holds, and for one that waits, are the caller's.
func doing(c fencelock.Standing, holds, waits string) string {
	switch {
	case c.Lingering:
		return "lingers"
	case c.Reason != "":
		return "ends" // under notice
	case c.Granted:
		return holds
	}
	return waits
}

func writeJSON(w io.Writer, v any, indent bool) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if indent {
		e.SetIndent("", "  ")
	}
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(terminal.EscapeHidden(b.Bytes()))
	return err
}

func sorted(lines []fencelock.Line) []fencelock.Line {
	slices.SortFunc(lines, byName)
	return lines
}
