package httplock

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
)

// The names of events.
const (
	eventWaiting  = "waiting"
	eventAcquired = "acquired"
	eventReleased = "released"
	eventLost     = "lost"
	eventBroken   = "broken"
	eventLine     = "line"  // the state of a line
	eventReset    = "reset" // events are missing before this one
)

const (
	lookEvery  = time.Second
	lookWithin = 10 * time.Second
	keptEvents = 4096
	goOnFor    = time.Minute // after the last viewer has gone: it may come again
)

// event is one event of the ring.
type event struct {
	n    uint64
	name string
	key  string
	data []byte // JSON
}

// events tells viewers what happens to the lines. It looks at all lines once a second for all
// viewers together, and notes what the Server itself does. Without viewers it does nothing.
type events struct {
	s *Server

	starting sync.Mutex // held during the first look

	mu      sync.Mutex
	viewers int
	running bool      // the loop is
	idle    time.Time // since when there are no viewers
	epoch   string    // of the ids
	ring    []event   // the last keptEvents
	next    uint64    // n of the next event
	more    chan struct{}
	pokes   map[string]bool // keys to look at now
	poked   chan struct{}   // holds one
	lines   map[string]lineView
	claims  map[string]map[fence.Token]*seen // by key
}

// seen is what is known of a claim. Its state never goes back, so a look that is older than
// what the Server has done itself changes nothing.
type seen struct {
	standing
	at    time.Time
	until time.Time // end of the lease as last seen
	state claimState
}

type claimState int

const (
	claimNew claimState = iota
	claimWaits
	claimHolds
	claimEnded
)

func (e *events) init(s *Server) {
	e.s, e.more, e.poked = s, make(chan struct{}), make(chan struct{}, 1)
}

// eventData is the data of all events but line.
type eventData struct {
	Key    string      `json:"key"`
	Token  fence.Token `json:"token"`
	Owner  string      `json:"owner"`
	Note   string      `json:"note"`
	Kind   string      `json:"kind"`
	Reason string      `json:"reason,omitempty"`
	At     time.Time   `json:"at"`
}

// acquired notes a grant of this Server.
func (e *events) acquired(w *want, g *granted) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.running {
		return
	}
	e.advanceLocked(w.Key, standing{
		Token: g.Token, Owner: w.Owner, Note: w.Note, Kind: g.Kind, Permits: g.Permits, LeftMS: g.LeftMS,
	}, claimHolds, "", "")
	e.pokeLocked(w.Key)
}

// ended notes that this Server has ended a claim.
func (e *events) ended(key string, token fence.Token, name, reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.running {
		return
	}
	e.advanceLocked(key, standing{Token: token}, claimEnded, name, reason)
	e.pokeLocked(key)
}

// changed has the line of key looked at now.
func (e *events) changed(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running {
		e.pokeLocked(key)
	}
}

func (e *events) pokeLocked(key string) {
	e.pokes[key] = true
	select {
	case e.poked <- struct{}{}:
	default:
	}
}

// advanceLocked notes the state of a claim, and emits an event if it is a later one than before.
func (e *events) advanceLocked(key string, s standing, state claimState, end, reason string) {
	c := e.claims[key][s.Token]
	if c == nil {
		c = &seen{standing: s}
		e.knowLocked(key, c)
	}
	now := time.Now()
	c.at = now
	if state != claimEnded {
		c.until = now.Add(time.Duration(s.LeftMS) * time.Millisecond)
	}
	if state <= c.state {
		return
	}
	before := c.state
	c.state = state
	name := end
	switch state {
	case claimWaits:
		name = eventWaiting
	case claimHolds:
		name = eventAcquired
	case claimEnded:
		if before == claimWaits && end != eventBroken {
			return // a waiter that leaves shows in its line
		}
	}
	e.emitLocked(name, key, eventData{key, c.Token, c.Owner, c.Note, c.Kind, reason, now.UTC()})
}

func (e *events) knowLocked(key string, c *seen) {
	if e.claims[key] == nil {
		e.claims[key] = map[fence.Token]*seen{}
	}
	e.claims[key][c.Token] = c
}

func (e *events) emitLocked(name, key string, data any) {
	b, err := json.Marshal(data)
	if err != nil {
		panic(err) // the types of events can be encoded
	}
	e.ring = append(e.ring, event{e.next, name, key, b})
	if len(e.ring) > keptEvents {
		e.ring = append(e.ring[:0], e.ring[len(e.ring)-keptEvents/2:]...)
	}
	e.next++
	close(e.more)
	e.more = make(chan struct{})
}

// noteLine compares what is known of a line with a look that began at time began.
func (e *events) noteLine(l *fencelock.Line, began time.Time, quiet bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	view := viewOf(l)
	now := map[fence.Token]bool{}
	for i, list := range [][]standing{view.Holders, view.Waiters} {
		state := []claimState{claimHolds, claimWaits}[i]
		for _, s := range list {
			now[s.Token] = true
			if quiet {
				e.knowLocked(l.Key, &seen{
					standing: s, at: began, state: state, until: began.Add(time.Duration(s.LeftMS) * time.Millisecond),
				})
				continue
			}
			e.advanceLocked(l.Key, s, state, "", "")
		}
	}
	e.forgetLocked(l.Key, now, began)
	if steady(view).equal(steady(e.lines[l.Key])) {
		return
	}
	if len(l.Holders)+len(l.Waiters) > 0 {
		e.lines[l.Key] = view
	} else {
		delete(e.lines, l.Key)
	}
	if !quiet {
		e.emitLocked(eventLine, l.Key, view)
	}
}

// forgetLocked notes the end of the claims that a look, which began at time began, has not
// found in line any more.
func (e *events) forgetLocked(key string, found map[fence.Token]bool, began time.Time) {
	for token, c := range e.claims[key] {
		if found[token] || !c.at.Before(began) {
			continue
		}
		end := eventReleased
		if !time.Now().Before(c.until) {
			end = eventLost
		}
		e.advanceLocked(key, c.standing, claimEnded, end, "")
		delete(e.claims[key], token)
	}
	if len(e.claims[key]) == 0 {
		delete(e.claims, key)
	}
}

// steadyView is a view without what changes always.
type steadyView struct{ Holders, Waiters []standing }

func steady(v lineView) steadyView {
	s := steadyView{[]standing{}, []standing{}}
	for _, h := range v.Holders {
		h.LeftMS = 0
		s.Holders = append(s.Holders, h)
	}
	for _, w := range v.Waiters {
		w.LeftMS = 0
		s.Waiters = append(s.Waiters, w)
	}
	return s
}

func (s steadyView) equal(t steadyView) bool { return reflect.DeepEqual(s, t) }

// look looks at all lines. The first look makes no events.
func (e *events) look(ctx context.Context, first bool) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	began := time.Now()
	found := map[string]bool{}
	for l, err := range e.s.locks.Lines(ctx, "") {
		if err != nil {
			return err
		}
		found[l.Key] = true
		e.noteLine(&l, began, first)
		if len(found) == maxLooked {
			return nil
		}
	}
	for _, key := range e.knownKeys() {
		if !found[key] {
			e.noteLine(&fencelock.Line{Key: key}, began, first)
		}
	}
	return nil
}

func (e *events) knownKeys() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	keys := map[string]bool{}
	for key := range e.lines {
		keys[key] = true
	}
	for key := range e.claims {
		keys[key] = true
	}
	all := make([]string, 0, len(keys))
	for key := range keys {
		all = append(all, key)
	}
	return all
}

// run looks at the lines until nobody has viewed events for a while.
func (e *events) run() {
	ctx := e.s.draining
	pause := lookEvery
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-timer.C:
			began := time.Now()
			_ = e.look(ctx, false) // the next look shows what this one has missed
			pause = max(lookEvery, 10*time.Since(began))
			timer.Reset(pause)
		case <-e.poked:
			e.lookAtPoked(ctx)
		}
		if e.stop() {
			return
		}
	}
}

func (e *events) lookAtPoked(ctx context.Context) {
	e.mu.Lock()
	keys := e.pokes
	e.pokes = map[string]bool{}
	e.mu.Unlock()
	for key := range keys {
		began := time.Now()
		if l, err := e.s.locks.Line(ctx, key); err == nil {
			e.noteLine(&l, began, false)
		}
	}
}

// stop ends the loop if nobody has viewed events for a while, or the Server drains.
func (e *events) stop() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.s.draining.Err() == nil && (e.viewers > 0 || time.Since(e.idle) < goOnFor) {
		return false
	}
	e.running = false
	e.ring, e.lines, e.claims, e.pokes = nil, nil, nil, nil
	return true
}

// begin counts a viewer, and starts the loop if it is the first one.
func (e *events) begin(ctx context.Context) error {
	e.starting.Lock()
	defer e.starting.Unlock()
	e.mu.Lock()
	if e.viewers++; e.running {
		e.mu.Unlock()
		return nil
	}
	e.running = true
	e.epoch, e.next, e.ring = rand.Text()[:8], 1, nil // ids of before are of another epoch
	e.lines, e.claims, e.pokes = map[string]lineView{}, map[string]map[fence.Token]*seen{}, map[string]bool{}
	e.mu.Unlock()
	err := e.look(ctx, true)
	if err != nil {
		e.mu.Lock()
		e.running = false
		e.viewers--
		e.mu.Unlock()
		return err
	}
	go e.run()
	return nil
}

func (e *events) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.viewers--
	e.idle = time.Now()
}

func (e *events) len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.viewers
}

// after returns the events from n on and where to go on, or the state of all lines if those
// events are not there any more.
func (e *events) after(n uint64, all bool) (list []event, next uint64, whole bool, more <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	oldest := e.next
	if len(e.ring) > 0 {
		oldest = e.ring[0].n
	}
	if all || n < oldest || n > e.next {
		for key, v := range e.lines {
			b, err := json.Marshal(v)
			if err != nil {
				panic(err)
			}
			list = append(list, event{e.next - 1, eventLine, key, b})
		}
		return list, e.next, true, e.more
	}
	return append(list, e.ring[len(e.ring)-int(e.next-n):]...), e.next, false, e.more
}

// position reads a Last-Event-ID.
func (e *events) position(id string) (next uint64, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	epoch, number, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	return n + 1, err == nil && epoch == e.epoch
}

func (e *events) format(b *strings.Builder, ev *event) {
	fmt.Fprintf(b, "id: %s-%d\nevent: %s\ndata: %s\n\n", e.epoch, ev.n, ev.name, ev.data)
}
