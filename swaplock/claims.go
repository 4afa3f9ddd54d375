package swaplock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/line"
)

// own is a claim that entered through this Backend, or one that an Await asks for.
type own struct {
	driverutil.ClaimRef
	grant string        // News.Grant of the claim
	wake  chan struct{} // has room for one: there is news

	// claims.mu guards:

	token   int64 // 0 until Enter has returned
	granted bool
	named   bool          // others may wait for the same claim
	told    time.Time     // when the grant was heard that no Await has returned yet
	missed  int64         // while token is 0: the largest token of which there was news
	look    time.Time     // when an Await looks at the latest: a lease ahead may have ended
	leaves  bool          // a Leave is under way
	notice  time.Duration // the end of the notice of which the alarm was told
	lost    int64         // State.Lost where the claim entered
	arrived *Arrival      // as which it waits, if it does and nobody has taken it into the document
}

// claims are the claims of a Backend.
type claims struct {
	mu       sync.Mutex
	byKey    map[string]map[string]*own // by key and ID
	versions map[string]string          // of those keys, as last seen
	lines    map[string]*State          // see keep
	alarms   driverutil.Alarms
	alarmed  time.Time // when versions of granted claims were last asked for
	began    time.Time
	clock    clock.Clock // goes on while the machine sleeps
}

func newClaims() claims {
	return claims{
		byKey: make(map[string]map[string]*own), versions: make(map[string]string), lines: make(map[string]*State),
		began: time.Now(),
	}
}

// proof is News.Grant of the claim with id.
func proof(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// enter notes that a claim is about to enter: from now on its news is kept.
func (cs *claims) enter(ref driverutil.ClaimRef) (o *own, known bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if o = cs.byKey[ref.Key][ref.ID]; o != nil {
		return o, true
	}
	if cs.byKey[ref.Key] == nil {
		cs.byKey[ref.Key] = make(map[string]*own, 1)
	}
	o = &own{ClaimRef: ref, grant: proof(ref.ID), wake: make(chan struct{}, 1)}
	cs.byKey[ref.Key][ref.ID] = o
	return o, false
}

// enters notes that the claim of o has entered what is in st, maybe as a, and where it stands.
func (cs *claims) enters(o *own, t *driver.Ticket, st *State, quiet time.Duration, a *Arrival) {
	cs.stands(o, t, st, quiet)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	o.lost, o.arrived = st.Lost, a
}

// stands notes where the claim of o stands in its line, which is as st, and in which no lease ends for so long.
func (cs *claims) stands(o *own, t *driver.Ticket, st *State, quiet time.Duration) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if o.token == 0 {
		o.lost = st.Lost
		if o.missed >= t.Token {
			o.poke()
		}
	}
	o.token, o.named, o.look = t.Token, t.Named, time.Now().Add(quiet)
	o.granted = t.Granted || !o.told.IsZero() // it may have been heard of before the answer came
	if t.Granted {
		o.told = time.Time{} // the ticket tells
	}
	if _, ok := cs.versions[o.Key]; !ok { // of a later one, others of this process must hear
		cs.versions[o.Key] = st.Version
	}
}

// seen delivers what a reading of key says of the claims of this Backend: one reading serves all of them. It returns
// those that were granted and are gone, or under notice.
func (cs *claims) seen(key string, r *reading) (doubtful []*own) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	owned := cs.byKey[key]
	if len(owned) == 0 {
		return nil
	}
	cs.versions[key] = r.Version
	cs.keepLocked(key, r.whole())
	now, quiet := time.Now(), r.quiet()
	for _, o := range owned {
		if r.beyond(o.token) {
			continue
		}
		c := r.Find(o.ID)
		switch {
		case c != nil && c.Granted:
			o.holds(c, now)
			if c.Noticed && o.notice != c.Expires && cs.alarms.Len() > 0 {
				o.notice = c.Expires
				doubtful = append(doubtful, o)
			}
		case c != nil:
			o.look = now.Add(quiet)
		case o.token == 0 || o.token > r.Line.Last: // it may be in line
		case !o.granted:
			o.poke() // a look has the reason
		case !o.leaves && cs.alarms.Len() > 0:
			doubtful = append(doubtful, o)
		}
	}
	return doubtful
}

// holds notes that o is c, which is granted.
func (o *own) holds(c *line.Claim, now time.Time) {
	if o.granted {
		return
	}
	if c.Mark == "" { // else a look has the mark
		o.granted, o.told = true, now
	}
	o.poke()
}

// leaving notes whether a claim leaves.
func (cs *claims) leaving(ref driverutil.ClaimRef, leaves bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if o := cs.byKey[ref.Key][ref.ID]; o != nil {
		o.leaves = leaves
	}
}

// leave forgets a claim, and has who awaits it look.
func (cs *claims) leave(ref driverutil.ClaimRef) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if o := cs.byKey[ref.Key][ref.ID]; o != nil {
		o.poke()
	}
	if delete(cs.byKey[ref.Key], ref.ID); len(cs.byKey[ref.Key]) == 0 {
		delete(cs.byKey, ref.Key)
		delete(cs.versions, ref.Key)
		if st := cs.lines[ref.Key]; st == nil || !st.empty() {
			cs.keepLocked(ref.Key, crowded)
		}
	}
}

// lends notes that a claim that waits as an arrival may have a record from now on.
func (cs *claims) lends(ref driverutil.ClaimRef) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if o := cs.byKey[ref.Key][ref.ID]; o != nil && o.arrived != nil {
		a := *o.arrived
		a.Lent, o.arrived = true, &a
	}
}

// arrived takes the arrival as which a claim may wait still.
func (cs *claims) arrived(ref driverutil.ClaimRef) (a *Arrival) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if o := cs.byKey[ref.Key][ref.ID]; o != nil && !o.granted {
		a, o.arrived = o.arrived, nil
	}
	return a
}

// heard reports whether a grant of o was heard a moment ago. It says so once.
func (cs *claims) heard(o *own) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	fresh := !o.told.IsZero() && time.Since(o.told) < maxAwait
	o.told = time.Time{}
	return fresh
}

// sleep returns when there is news of o, or an Await of it must look. All that hear nothing look at the same moment,
// once a second, so that one reading of a line serves all who wait in it. One that others have done meanwhile serves,
// too.
func (cs *claims) sleep(ctx, closed context.Context, o *own) {
	end := time.Now().Add(maxAwait - time.Since(cs.began)%maxAwait)
	for {
		cs.mu.Lock()
		d := min(time.Until(end), time.Until(o.look))
		cs.mu.Unlock()
		if d <= 0 {
			return
		}
		timer := time.NewTimer(d)
		select {
		case <-timer.C:
			continue
		case <-o.wake:
		case <-closed.Done():
		case <-ctx.Done():
		}
		timer.Stop()
		return
	}
}

// hear delivers news of key, and returns the granted claims that may have been broken. Without a key it concerns all
// claims.
func (cs *claims) hear(key string, news []News) (doubtful []*own) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if key == "" {
		for _, owned := range cs.byKey {
			for _, o := range owned {
				o.poke()
			}
		}
		return nil
	}
	for _, o := range cs.byKey[key] {
		held := o.granted && !o.leaves
		if !cs.concerns(o, key, news) {
			continue
		}
		o.poke()
		if held && cs.alarms.Len() > 0 {
			doubtful = append(doubtful, o)
		}
	}
	return doubtful
}

// news says what the waiting clients must hear about a step on key, and what of that other processes must.
func (cs *claims) news(key string, s *line.Step) (all, others []News) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, n := range s.News {
		told := News{Token: n.Claim.Token, Node: n.Claim.Node}
		if n.Granted && n.Claim.Mark == "" {
			told.Grant = proof(n.Claim.ID)
		}
		all = append(all, told)
		if o := cs.byKey[key][n.Claim.ID]; o == nil || o.named {
			others = append(others, told)
		}
	}
	return all, others
}

// concerns notes what is of concern to o, and reports whether anything is.
func (cs *claims) concerns(o *own, key string, news []News) (concerned bool) {
	for _, n := range news {
		switch {
		case n.Grant == o.grant:
			o.granted, o.told, concerned = true, time.Now(), true
			if n.State != nil {
				st := *n.State
				st.sent, st.read, st.took = cs.clock.Now(), st.Now, math.MaxInt64 // nobody knows when it was read
				cs.keepLocked(key, &st)
			} else {
				cs.keepLocked(key, nil)
			}
		case n.Grant == "" && n.Token == o.token:
			o.granted, o.told, concerned = false, time.Time{}, true
		case o.token == 0:
			o.missed = max(o.missed, n.Token)
		}
	}
	return concerned
}

// outlived reports whether a claim has entered before the store was lost for so many times.
func (cs *claims) outlived(ref driverutil.ClaimRef, times int64) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	o := cs.byKey[ref.Key][ref.ID]
	return o != nil && o.token != 0 && o.lost < times
}

func (o *own) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// waiting has the versions of the keys that somebody waits for, as last seen; and once a second, while
// there is an alarm, of those that somebody holds.
func (cs *claims) waiting() map[string]string {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	held := cs.alarms.Len() > 0 && time.Since(cs.alarmed) >= maxAwait
	if held {
		cs.alarmed = time.Now()
	}
	keys := make(map[string]string)
	for key, owned := range cs.byKey {
		for _, o := range owned {
			if o.token != 0 && (held || !o.granted) {
				keys[key] = cs.versions[key]
				break
			}
		}
	}
	return keys
}
