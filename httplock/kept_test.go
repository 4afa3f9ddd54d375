package httplock_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/httplock"
)

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
			a.do("POST", "/v1/break", fmt.Sprintf(`{"key":"k","token":%q,"reason":"stuck"}`, h.text("token"))).ok(t)
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
