package console

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/httplock/internal/watch"
	"github.com/fencelock/fencelock/internal/limit"
)

const maxHistory = 50 // events on a page

type keyPage struct {
	page
	state
	Key      string
	Line     fencelock.Line
	Kind     string // "lock", "semaphore"; empty: nobody uses it
	Size     int64
	Holding  int // claims
	Waiting  int // claims
	MayBreak bool
	Claims   []keyClaim
	More     int // waiters that are not in Claims
	History  []watch.Change
	Waits    chart
	Holds    chart
	Broken   fence.Token // a claim that this visitor has just broken
	Revoked  fence.Token // a claim that this visitor has given notice to
	Opened   fence.Token // a claim that lingered until this visitor has opened the key
}

// keyClaim is one claim of the line.
type keyClaim struct {
	fencelock.Standing
	Place int // among the waiters
	For   time.Duration
	Rest  lease
	Break string // address; empty: not allowed
}

// keyOf reads the key of a request. It answers for a bad one, and for one that the visitor
// may not see.
func (v *visit) keyOf() (string, bool) {
	key := v.URL.Query().Get("key")
	switch {
	case key == "" || len(key) > limit.Key:
		v.refuse(http.StatusBadRequest, "bad-key")
	case !v.who.mayLook(key):
		v.refuse(http.StatusForbidden, "no-look")
	default:
		return key, true
	}
	return "", false
}

// lineOf is the line of a key as the last look found it. Nothing remembers the last token of
// a key that is free but the store.
func (c *Console) lineOf(ctx context.Context, s *watch.State, key string) *watch.Line {
	if len(s.Lines) > 0 {
		return s.Lines[0]
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	found := &watch.Line{Line: fencelock.Line{Key: key}}
	if l, err := c.locks.Line(ctx, key); err == nil {
		found.Line = l
	}
	return found
}

// key shows one key.
func (c *Console) key(v *visit) {
	key, ok := v.keyOf()
	if !ok {
		return
	}
	s, _ := c.watch.Latest(v.Context(), v.picks(key, ""))
	l := c.lineOf(v.Context(), s, key)
	p := &keyPage{page: v.page("key.line"), state: stateOf(s), Key: key, Line: l.Line, MayBreak: v.who.mayBreak(key)}
	p.Title = shown(key)
	p.Refresh, p.Stream = refreshEvery, "live?"+url.Values{"key": {key}}.Encode()
	p.addClaims(l, s.At)
	events := c.watch.Of(key)
	p.Waits, p.Holds = chartsOf(v.lang, events)
	p.History = events[:min(len(events), maxHistory)]
	if t, err := fence.Parse(v.URL.Query().Get("broken")); err == nil && has(events, watch.Broken, t) {
		p.Broken = t
	}
	if t, err := fence.Parse(v.URL.Query().Get("revoked")); err == nil && has(events, watch.Revoked, t) {
		p.Revoked = t
	}
	if t, err := fence.Parse(v.URL.Query().Get("opened")); err == nil && t <= l.Last {
		if _, there := claimWith(&l.Line, t); !there {
			p.Opened = t
		}
	}
	v.render(http.StatusOK, "key", p)
}

func (p *keyPage) addClaims(l *watch.Line, at time.Time) {
	for _, s := range l.Claims {
		k := keyClaim{Standing: s, For: since(s.Since, at), Rest: leftOf(l, &s)}
		if s.Kind == "permits" {
			p.Kind, p.Size = "semaphore", max(p.Size, s.Size)
		} else {
			p.Kind = "lock"
		}
		if s.Granted {
			p.Holding++
		} else {
			p.Waiting++
			k.Place = p.Waiting
		}
		if len(p.Claims) >= maxRows {
			p.More++
			continue
		}
		if p.MayBreak {
			k.Break = "break?" + url.Values{"key": {l.Key}, "token": {s.Token.String()}}.Encode()
		}
		p.Claims = append(p.Claims, k)
	}
}

func has(events []watch.Change, what watch.What, token fence.Token) bool {
	for _, e := range events {
		if e.What == what && e.Token == token {
			return true
		}
	}
	return false
}
