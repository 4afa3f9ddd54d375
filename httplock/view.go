package httplock

import (
	"cmp"
	"encoding/base64"
	"time"
	"unicode/utf8"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/note"
)

// standing is a claim in a line, as JSON.
type standing struct {
	Token     fence.Token `json:"token"`
	Owner     string      `json:"owner"`
	Note      string      `json:"note"`
	Slot      string      `json:"slot,omitempty"` // of once
	Kind      string      `json:"kind"`
	Permits   int64       `json:"permits,omitempty"`
	Since     time.Time   `json:"since"`
	LeftMS    int64       `json:"left_ms"`
	Lingering bool        `json:"lingering,omitempty"`
	Notice    string      `json:"notice,omitempty"` // why it ends after left_ms
}

// lineView is a line, as JSON. Its names are those of fencelock show -o json.
type lineView struct {
	Key       string      `json:"key"`
	KeyB64    string      `json:"key_b64,omitempty"` // if the key is not UTF-8
	LastToken fence.Token `json:"last_token"`
	Kind      string      `json:"kind"` // "lock", "semaphore"; "" if nobody uses it
	Size      int64       `json:"size,omitempty"`
	Holders   []standing  `json:"holders"`
	Waiters   []standing  `json:"waiters"`
	LastRun   *runView    `json:"last_run,omitempty"`
}

// runView is the last slot that once finished. The slot is null for once forever.
type runView struct {
	Slot  *time.Time `json:"slot"`
	Done  time.Time  `json:"done"`
	Owner string     `json:"owner"`
}

func standingOf(c *fencelock.Standing) standing {
	s := standing{
		Token: c.Token, Owner: c.Owner, Kind: c.Kind, Permits: c.Permits,
		Since: c.Since.UTC(), LeftMS: max(c.Left, 0).Milliseconds(), Lingering: c.Lingering, Notice: c.Reason,
	}
	s.setNote(c.Note)
	return s
}

// setNote sets the note, and the slot of a claim of once, from what the store keeps as the note.
func (s *standing) setNote(stored string) {
	n := note.Parse(stored)
	if s.Note = n.Text; n.Slot != nil {
		s.Slot = note.Slot(*n.Slot)
	}
}

func viewOf(l *fencelock.Line) lineView {
	v := lineView{Key: l.Key, LastToken: l.Last, Holders: []standing{}, Waiters: []standing{}}
	if !utf8.ValidString(l.Key) {
		v.KeyB64 = base64.StdEncoding.EncodeToString([]byte(l.Key))
	}
	for _, c := range l.Claims {
		if c.Kind == "permits" {
			v.Kind, v.Size = cmp.Or(v.Kind, "semaphore"), max(v.Size, c.Size)
		} else {
			v.Kind = cmp.Or(v.Kind, "lock")
		}
		if c.Granted {
			v.Holders = append(v.Holders, standingOf(&c))
		} else {
			v.Waiters = append(v.Waiters, standingOf(&c))
		}
	}
	if !l.Done.IsZero() {
		v.LastRun = &runView{Slot: slotTime(l.Slot), Done: l.Done.UTC(), Owner: l.DoneBy}
	}
	return v
}

func slotTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// setKey adds a key to an answer.
func setKey(body map[string]any, key string) {
	body["key"] = key
	if !utf8.ValidString(key) {
		body["key_b64"] = base64.StdEncoding.EncodeToString([]byte(key))
	}
}
