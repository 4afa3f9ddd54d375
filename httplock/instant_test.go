package httplock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/httplock"
)

// atGrant is a store that cannot pass leases on. It does something in the instant in which the
// store has granted a claim, and nobody knows of it yet.
type atGrant struct {
	driver.Backend
	do func()
}

func (s *atGrant) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	t, err := s.Backend.Enter(ctx, c)
	if do := s.do; err == nil && t.Granted && do != nil {
		s.do = nil
		do()
	}
	return t, err
}

// atStep is a store that passes leases on, and does something in the instant in which it has
// granted a claim, at once or after a wait, and nobody knows of it yet.
type atStep struct {
	*atGrant
	driver.Detacher
}

// Renew starts the full lease of a claim that has waited.
func (s *atStep) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs := s.Backend.Renew(ctx, ts)
	if do := s.do; do != nil && ts[0].TTL > placeKept {
		s.do = nil
		do()
	}
	return errs
}

// The client of a quorum or of ZooKeeper closed its connection as its lock was granted. The lease stayed until its ttl,
// and no handle ended it. So did, on every store, the lease of a client without a request_id.
func TestClientThatGoesAsItIsGrantedLeavesNothing(t *testing.T) {
	const mine = `,"stay":true,"request_id":"wish-of-mine"`
	goes := func(_ *local, cancel func()) { cancel() }
	for path, slot := range map[string]string{"/v1/acquire": "", "/v1/once": `,"slot":"1h"`} {
		for name, c := range map[string]struct {
			kept, waits bool
			more        string
			end         func(a *local, cancel func())
		}{
			"the client goes":                    {kept: true, more: mine, end: goes},
			"the server drains":                  {kept: true, more: mine, end: func(a *local, _ func()) { a.Drain() }},
			"the wait is over":                   {kept: true, more: mine, end: func(*local, func()) { time.Sleep(3 * time.Second) }},
			"a client without a request_id goes": {end: goes},
			"it goes after a wait":               {end: goes, waits: true},
		} {
			t.Run(path+", "+name, func(t *testing.T) {
				inWorld(t, func(w *world) {
					store := &atStep{&atGrant{Backend: w.store}, w.store.(driver.Detacher)}
					w.store = store
					if c.kept {
						w.store = store.atGrant
					}
					w.goAsGranted(store.atGrant, path, `{"key":"k","ttl":"10m","wait":"3s"`+slot+c.more+`}`, c.waits, c.end)
				})
			})
		}
	}
}

// goAsGranted has end happen in the instant in which the store grants a request, at once or after a wait.
func (w *world) goAsGranted(store *atGrant, path, body string, waits bool, end func(a *local, cancel func())) {
	w.Helper()
	a, b := w.server(nil), w.server(nil)
	var holder result
	if waits {
		holder = b.acquire("k")
	}
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	went := false
	store.do = func() {
		went = true
		end(a, cancel)
		time.Sleep(time.Millisecond) // until the server has heard of it
	}
	done := make(chan result, 1)
	go func() { done <- a.doUntil(ctx, "POST", path, body) }()
	synctest.Wait()
	if waits {
		b.verb("release", holder).ok(w)
	}
	<-done
	synctest.Wait()
	steps.Same(w, "the client has gone", went, true)
	steps.Same(w, "leases are kept", a.Kept(), 0)
	b.verb("release", b.acquire("k")).ok(w)
}

// With a request_id the grant stays for the request that the client repeats, at any server.
func TestClientThatGoesAsItIsGrantedMayComeAgain(t *testing.T) {
	const body = `{"key":"k","ttl":"10m","request_id":"wish-of-mine"}`
	inWorld(t, func(w *world) {
		store := &atStep{&atGrant{Backend: w.store}, w.store.(driver.Detacher)}
		w.store = store
		a, b := w.server(nil), w.server(nil)
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		var first result
		store.do = func() {
			first = b.do("POST", "/v1/acquire", body).ok(t)
			cancel()
			time.Sleep(time.Millisecond)
		}
		a.doUntil(ctx, "POST", "/v1/acquire", body)
		synctest.Wait()
		b.verb("renew", first).ok(t)
		if again := a.do("POST", "/v1/acquire", body).ok(t); again.text("token") != first.text("token") {
			t.Errorf("the grant was %v, and is %v", first.answer, again.answer)
		}
	})
}

// A request was repeated over a new connection as its first copy was granted. It waited in line
// behind its own grant.
func TestRequestThatIsRepeatedAsItIsGranted(t *testing.T) {
	const body = `{"key":"k","ttl":"10m","wait":"1m","request_id":"wish-of-mine"}`
	inWorld(t, func(w *world) {
		store := &atGrant{Backend: w.store}
		w.store = store
		a := w.server(nil)
		var again *pending
		store.do = func() {
			again = a.start("/v1/acquire", body)
			time.Sleep(time.Millisecond) // until the server waits for the end of the first copy
		}
		first := a.begin("/v1/acquire", body)
		time.Sleep(time.Second)
		first.wait(t).is(t, 503, "come-again")
		h := again.wait(t).ok(t)
		a.verb("renew", h).ok(t)
		a.verb("release", h).ok(t)
	})
}

// The same, at any moment around the grant.
func TestRequestThatIsRepeatedAroundItsGrant(t *testing.T) {
	inWorld(t, func(w *world) {
		store := &atGrant{Backend: w.store}
		w.store = store
		a := w.server(nil)
		for i := range 1000 {
			body := fmt.Sprintf(`{"key":"k%d","ttl":"10m","wait":"1m","request_id":"wish-of-mine"}`, i)
			store.do = func() { time.Sleep(time.Millisecond) }
			first := a.start("/v1/acquire", body)
			time.Sleep(time.Millisecond) // both go on in one instant of virtual time
			again := a.start("/v1/acquire", body)
			time.Sleep(time.Millisecond)
			h := again.wait(t).ok(t)
			if r := first.wait(t); r.status == 200 && r.text("handle") != h.text("handle") {
				t.Fatalf("the copies have %v and %v", r.answer, h.answer)
			}
			a.verb("release", h).ok(t)
		}
	})
}

// Where the store cannot pass leases on, the server that granted one keeps it, and the others
// say which one that is.
func TestKeptLeaseBelongsToItsServer(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store = plain{w.store}
		const here, there = "http://10.0.0.1:7533", "https://locks.example/b"
		a := w.server(&httplock.Options{Advertise: here, Peers: []string{there}})
		b := w.server(&httplock.Options{Advertise: there, Peers: []string{here}})
		stranger := w.server(nil)
		h := a.do("POST", "/v1/acquire", `{"key":"k","ttl":"20s","request_id":"wish-of-mine"}`).ok(t)
		if !strings.HasPrefix(h.text("handle"), "i1.") || a.Kept() != 1 {
			t.Errorf("the grant is %v, and %d are kept", h.answer, a.Kept())
		}
		again := a.do("POST", "/v1/acquire", `{"key":"k","ttl":"20s","request_id":"wish-of-mine"}`).ok(t)
		if again.text("handle") != h.text("handle") {
			t.Errorf("again: %v", again.answer)
		}
		for _, verb := range []string{"renew", "check", "release"} {
			if r := b.verb(verb, h).is(t, 421, "misdirected"); r.text("instance") != here {
				t.Errorf("%s elsewhere: %v", verb, r.answer)
			}
			// A handle could name any host, and clients send their tokens where a 421 points to.
			if r := stranger.verb(verb, h).is(t, 421, "misdirected"); r.text("instance") != "" {
				t.Errorf("%s at a stranger: %v", verb, r.answer)
			}
		}
		for range 3 {
			time.Sleep(15 * time.Second)
			if r := a.verb("renew", h).ok(t); r.number("left_ms") < 19_000 || r.text("token") != h.text("token") {
				t.Errorf("renewed: %v", r.answer)
			}
		}
		b.do("POST", "/v1/acquire", `{"key":"k"}`).is(t, 409, "not-acquired")
		waits := b.begin("/v1/acquire", `{"key":"k","wait":"1m"}`)
		a.verb("release", h).ok(t)
		next := waits.wait(t).ok(t)
		a.verb("check", h).is(t, 410, "lost")

		time.Sleep(29 * time.Second)
		b.verb("check", next).ok(t)
		time.Sleep(2 * time.Second)
		b.verb("check", next).is(t, 410, "lost")
		b.verb("renew", next).is(t, 410, "lost")
		if a.Kept()+b.Kept() != 0 {
			t.Errorf("%d and %d leases are kept", a.Kept(), b.Kept())
		}
	})
}

func TestKeptLeaseIsBroken(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store = plain{w.store}
		a := w.server(nil)
		for i, path := range []string{"/v1/acquire", "/v1/once"} {
			body := []string{`{"key":"k"}`, `{"key":"k","slot":"1h"}`}[i]
			h := a.do("POST", path, body).ok(t)
			a.breaks(h.text("token"), "").ok(t)
			synctest.Wait()
			for _, verb := range []string{"check", "renew", "release"} {
				a.verb(verb, h).is(t, 410, "lost")
			}
		}
		h := a.acquire("k")
		a.do("POST", "/v1/release", fmt.Sprintf(`{"handle":%q,"done":"ever"}`, h.text("handle"))).is(t, 400, "invalid")
		waits := a.begin("/v1/acquire", `{"key":"k","wait":"5m"}`)
		waits.cancel() // such a claim leaves at once
		synctest.Wait()
		if n := a.waiters("k"); n != 0 {
			t.Errorf("%d wait", n)
		}
		a.verb("release", h).ok(t)
	})
}
