package zklock

import (
	"context"
	"maps"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// ref names a claim: the same ID on another key is another claim.
type ref struct{ key, id string }

// place is a claim that this Backend has entered, or tries to. Steps on one claim go
// one after the other, under lock; what others read meanwhile is guarded by the
// Backend's mutex.
type place struct {
	ref
	lock chan struct{}

	session *session
	path    string // of its node; empty if it is not in line for all we know
	czxid   int64
	card    card
	ttl     time.Duration
	ends    time.Time // when its lease is over, at the latest, for its holder
	timer   *time.Timer
	granted bool          // it was seen granted, so it is for as long as it is in line
	late    time.Time     // when it was seen granted, if its card is still to say so
	shared  bool          // others were in line when last looked, or a mark is kept
	over    chan struct{} // closed when path becomes empty again
	gone    *driver.ErrGone
	joined  time.Time
	stood   time.Time // since when it waits, or holds
	version int32     // of the line since it joined it when it was empty; -1 if it was not
	members []string  // whom it waits for, as of looked
	watches []*watch  // on them, and on itself if it has waited for a while, once they are set
	first   member    // in line, as of looked
	asked   string    // the node that was last asked whose it is, being first
	looked  time.Time
	gen     int

	unsure  *session // an Enter under it got no answer
	pending bool     // a request of an Enter is on its way
}

func (p *place) stopTimer() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

// rest keeps an ID out of a line.
type rest struct {
	gone driver.ErrGone
	end  time.Time
}

// find returns the place of r, or nil, and why r is out of the line if that is
// remembered.
func (b *Backend) find(r ref) (*place, *driver.ErrGone) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.places[r]
	if x := b.rests[r]; x != nil {
		return p, &x.gone
	}
	if p != nil && p.path == "" {
		return p, p.gone
	}
	return p, nil
}

// inLine returns what is known of p's node; ok is false if it has none.
func (b *Backend) inLine(p *place) (path string, s *session, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return p.path, p.session, p.path != ""
}

// lay lays r to rest for d. What an operator said is kept over what others say.
func (b *Backend) lay(r ref, gone driver.ErrGone, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	end := time.Now().Add(d)
	if x := b.rests[r]; x != nil {
		if x.gone.Broken {
			gone = x.gone
		}
		if x.end.After(end) {
			end = x.end
		}
		x.gone, x.end = gone, end
		return // its timer looks again
	}
	x := &rest{gone, end}
	b.rests[r] = x
	b.restLater(r, x)
}

// restLater forgets x when it is over.
func (b *Backend) restLater(r ref, x *rest) {
	time.AfterFunc(time.Until(x.end), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if time.Now().Before(x.end) {
			b.restLater(r, x)
			return
		}
		delete(b.rests, r)
	})
}

// take gets hold of the place of r, which it makes if there is none.
func (b *Backend) take(ctx context.Context, r ref) (*place, error) {
	for {
		b.mu.Lock()
		p := b.places[r]
		if p == nil {
			p = &place{ref: r, lock: make(chan struct{}, 1)}
			b.places[r] = p
		}
		b.mu.Unlock()
		select {
		case p.lock <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-b.closed:
			return nil, driver.ErrClosed
		}
		b.mu.Lock()
		mine := b.places[r] == p
		b.mu.Unlock()
		if mine {
			return p, nil
		}
		<-p.lock
	}
}

// release lets go of p, and forgets it unless there is something to remember.
func (b *Backend) release(p *place) {
	b.mu.Lock()
	if p.path == "" && p.unsure == nil && p.gone == nil {
		delete(b.places, p.ref)
	}
	b.mu.Unlock()
	<-p.lock
}

// settle notes that p is in line. Its lease begins now. p is held.
func (b *Backend) settle(p *place, s *session, path string, czxid int64, ttl time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.session, p.path, p.czxid = s, path, czxid
	p.unsure, p.gone = nil, nil
	p.granted, p.shared = false, true
	p.late, p.members, p.watches, p.asked = time.Time{}, nil, nil, ""
	p.joined = time.Now()
	p.stood, p.version = p.joined, -1
	p.over = make(chan struct{})
	p.ends = time.Time{}
	b.extend(p, ttl)
}

// extend starts p's lease again. b.mu is held.
func (b *Backend) extend(p *place, ttl time.Duration) {
	p.ttl = ttl
	if end := time.Now().Add(ttl); end.After(p.ends) {
		p.ends = end
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(time.Until(p.ends), func() { b.lapse(p) })
	} else {
		p.timer.Reset(time.Until(p.ends))
	}
}

// lapse takes p out of the line when its lease is over: the session, which others
// keep alive, would keep it there for ever.
func (b *Backend) lapse(p *place) {
	b.mu.Lock()
	if p.path == "" {
		b.mu.Unlock()
		return
	}
	if left := time.Until(p.ends); left > 0 {
		p.timer.Reset(left)
		b.mu.Unlock()
		return
	}
	path, s := p.path, p.session
	b.vacate(p, goneLease)
	b.mu.Unlock()
	b.background(func(ctx context.Context) { b.bury(ctx, s, p.key, path) })
}

// vacate notes that p is not in line any more, and why. b.mu is held.
func (b *Backend) vacate(p *place, gone driver.ErrGone) {
	if p.path == "" {
		return
	}
	p.path, p.gone = "", &gone
	p.stopTimer()
	close(p.over)
	b.forgetLater(p)
}

// forgetLater keeps the reason for those who ask late, and not for ever.
func (b *Backend) forgetLater(p *place) {
	time.AfterFunc(max(p.ttl, time.Minute), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch {
		case b.places[p.ref] != p || p.path != "":
		case len(p.lock) > 0 || p.unsure != nil:
			b.forgetLater(p)
		default:
			delete(b.places, p.ref)
		}
	})
}

// forget notes that p has left by itself; nobody needs to know why. p is held.
func (b *Backend) forget(p *place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.path != "" {
		p.path = ""
		p.stopTimer()
		close(p.over)
	}
	p.gone, p.unsure = nil, nil
}

// end is vacate for one who does not hold b.mu. It reports whether p was in line at
// path.
func (b *Backend) end(p *place, path string, gone driver.ErrGone) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.path == "" || p.path != path {
		return false
	}
	b.vacate(p, gone)
	return true
}

// sessionLost ends all claims of s.
func (b *Backend) sessionLost(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.places {
		if p.session == s {
			b.vacate(p, goneSession)
		}
	}
}

// mostKnown bounds how many lines are remembered, and with that how many empty containers
// this Backend leaves to the server each minute, which clears away ten thousand by default.
const (
	mostKnown = 1024
	knownFor  = time.Minute // how often the server looks for empty containers by default
)

// container is what is known of a line's container.
type container struct {
	at      time.Time // it was there
	empty   bool      // our claim was the last one, and nobody here has entered since
	version int32     // when that left
}

// resume says whether the line of key was there a short while ago, so that making it would
// be in vain, and its version if it was left empty, or -1. Whoever asks is about to enter.
func (b *Backend) resume(key string) (known bool, version int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k, ok := b.known[key]
	if !ok || time.Since(k.at) > knownFor {
		return false, -1
	}
	if !k.empty {
		return true, -1
	}
	b.known[key] = container{at: k.at}
	return true, k.version
}

// learn notes whether the line of key is there.
func (b *Backend) learn(key string, there bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !there {
		delete(b.known, key)
	} else if b.room(key) {
		b.known[key] = container{at: time.Now()}
	}
}

// learnEmpty notes that the line of key is there, and that its last claim has left it.
func (b *Backend) learnEmpty(key string, version int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.room(key) {
		b.known[key] = container{time.Now(), true, version}
	}
}

// keeps reports whether the container of key stays when the last claim leaves: whoever
// comes back soon need not make it again.
func (b *Backend) keeps(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.room(key)
}

// room reports whether one may remember the line of key. b.mu is held.
func (b *Backend) room(key string) bool {
	if _, ok := b.known[key]; ok || len(b.known) < mostKnown {
		return true
	}
	if time.Since(b.pruned) > time.Second {
		b.pruned = time.Now()
		maps.DeleteFunc(b.known, func(_ string, k container) bool { return time.Since(k.at) > knownFor })
	}
	return len(b.known) < mostKnown
}
