package httplock_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/faulty"
	"github.com/fencelock/fencelock/httplock"
)

func TestWaiterIsGrantedInItsTurn(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.server(nil), w.server(nil)
		holder := a.acquire("k")
		first := b.begin("/v1/acquire", `{"key":"k","wait":"1m","ttl":"40s"}`)
		last := a.begin("/v1/acquire", `{"key":"k","wait":"1m"}`)
		time.Sleep(10 * time.Second)
		b.verb("release", holder).ok(t)
		got := first.wait(t).ok(t)
		if got.text("token") <= holder.text("token") || got.number("waited_ms") != 10_000 {
			t.Errorf("the grant is %v, after %v", got.answer, holder.answer)
		}
		if left := got.number("left_ms"); left < 39_000 || left > 40_000 { // not what was left of the waiting
			t.Errorf("%v ms are left of a lease of 40 s", left)
		}
		last.stillWaits(t)
		time.Sleep(40 * time.Second) // nobody renews the lease
		last.wait(t).ok(t)
		a.verb("check", got).is(t, 410, "lost")
	})
}

func TestWaitThatIsOverIsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.server(nil)
		a.do("POST", "/v1/acquire", `{"key":"k","owner":"alice","note":"long","ttl":"90s"}`).ok(t)
		second := a.begin("/v1/acquire", `{"key":"k","wait":"1m"}`)
		third := a.begin("/v1/acquire", `{"key":"k","wait":"20s","request_id":"wish-of-mine"}`)
		time.Sleep(20 * time.Second)
		refused := third.wait(t).is(t, 409, "not-acquired")
		holders, _ := refused.answer["holders"].([]any)
		if len(holders) != 1 || holders[0].(map[string]any)["owner"] != "alice" || refused.number("ahead") != 2 ||
			refused.header.Get("Retry-After") == "" || refused.text("request_id") != "wish-of-mine" {
			t.Errorf("the refusal is %v, %v", refused.answer, refused.header)
		}
		if n := a.waiters("k"); n != 1 {
			t.Errorf("%d wait, want the second alone", n)
		}
		second.stillWaits(t)
		// The same wish again would be another one: its place is gone.
		a.do("POST", "/v1/acquire", `{"key":"k","request_id":"wish-of-mine"}`).is(t, 410, "lost")
		a.do("POST", "/v1/acquire", `{"key":"k","request_id":"wish-number-2"}`).is(t, 409, "not-acquired")
		a.do("POST", "/v1/acquire", `{"key":"k","request_id":"wish-number-2"}`).is(t, 409, "not-acquired")
		second.cancel()
	})
}

func TestRepeatedRequestHasItsGrant(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.server(nil), w.server(nil)
		for _, body := range []string{
			`{"key":"x","request_id":"wish-of-mine"}`,
			`{"key":"r","kind":"shared","request_id":"wish-of-mine"}`,
			`{"key":"s","kind":"permits","size":3,"permits":2,"request_id":"wish-of-mine"}`,
			`{"key":"x2","wait":"5m","request_id":"wish-of-mine"}`,
		} {
			first := a.do("POST", "/v1/acquire", body).ok(t)
			time.Sleep(20 * time.Second)
			for _, s := range []*local{a, b} {
				again := s.do("POST", "/v1/acquire", body).ok(t)
				if again.text("handle") != first.text("handle") || again.text("token") != first.text("token") ||
					again.number("left_ms") < 29_000 || again.number("waited_ms") != 0 {
					t.Errorf("first %v, again %v", first.answer, again.answer)
				}
			}
			b.verb("release", first).ok(t)
			b.verb("check", first).is(t, 410, "lost")
		}
	})
}

// A copy of a request that a network delivers late must not take the lock for a client that has
// released it. That holds for a request_id that the server has drawn, too: the answer names it.
func TestReleasedRequestIsSpentEverywhere(t *testing.T) {
	for name, member := range map[string]string{"of the client": `,"request_id":"wish-of-mine"`, "of the server": ""} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a, b := w.server(nil), w.server(nil)
				got := a.do("POST", "/v1/acquire", `{"key":"k"`+member+`}`).ok(t)
				a.verb("release", got).ok(t)
				late := fmt.Sprintf(`{"key":"k","request_id":%q}`, got.text("request_id"))
				b.do("POST", "/v1/acquire", late).is(t, 410, "lost")
				b.acquire("k") // the key is free
			})
		})
	}
}

// The place in line belongs to the request_id, not to the server or the connection.
func TestRepeatedRequestKeepsItsPlace(t *testing.T) {
	const wish = `{"key":"k","wait":"5m","request_id":"wish-of-mine"}`
	cases := map[string]func(w *world, a *local, first *pending){
		"drained": func(w *world, a *local, first *pending) {
			a.Drain()
			if r := first.wait(w).is(w, 503, "come-again"); r.header.Get("Retry-After") != "1" {
				w.Errorf("Retry-After: %v", r.header)
			}
		},
		"connection lost": func(w *world, a *local, first *pending) {
			first.cancel()
			time.Sleep(900 * time.Millisecond)
		},
		"both at once": func(*world, *local, *pending) {},
	}
	for name, cut := range cases {
		for _, where := range []string{"elsewhere", "here"} {
			if name == "drained" && where == "here" {
				continue
			}
			t.Run(name+" "+where, func(t *testing.T) {
				inWorld(t, func(w *world) {
					a, b := w.server(nil), w.server(nil)
					holder := b.acquire("k")
					first := a.begin("/v1/acquire", wish)
					last := b.begin("/v1/acquire", `{"key":"k","wait":"5m"}`)
					cut(w, a, first)
					s := b
					if where == "here" {
						s = a
					}
					again := s.begin("/v1/acquire", wish)
					time.Sleep(10 * time.Second) // whatever was late has arrived
					if n := b.waiters("k"); n != 2 {
						t.Fatalf("%d wait, want 2", n)
					}
					b.verb("release", holder).ok(t)
					again.wait(t).ok(t)
					last.stillWaits(t)
					last.cancel()
				})
			})
		}
	}
}

func TestClosedConnectionLeavesTheLine(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.server(nil)
		holder := a.acquire("k")
		gone := a.begin("/v1/acquire", `{"key":"k","wait":"5m","ttl":"2m"}`)
		last := a.begin("/v1/acquire", `{"key":"k","wait":"5m"}`)
		gone.cancel()
		time.Sleep(placeKept)
		if n := a.waiters("k"); n != 1 {
			t.Errorf("%d wait, want the last alone", n)
		}
		a.verb("release", holder).ok(t)
		last.wait(t).ok(t)
	})
}

// A client that gives up for good leaves at once, wherever its claim stands.
func TestLeaveEndsARequest(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.server(nil)
		holder := a.acquire("k")
		const wish = `{"key":"k","wait":"5m","request_id":"wish-of-mine"}`
		const leave = `{"key":"k","request_id":"wish-of-mine"}`
		first := a.begin("/v1/acquire", wish)
		last := a.begin("/v1/acquire", `{"key":"k","wait":"5m"}`)
		a.do("POST", "/v1/leave", leave).ok(t)
		first.wait(t).is(t, 503, "come-again")
		if n := a.waiters("k"); n != 1 {
			t.Errorf("%d wait, want the last alone", n)
		}
		a.do("POST", "/v1/acquire", wish).is(t, 410, "lost") // the wish is spent
		a.do("POST", "/v1/leave", leave).ok(t)               // its answer was lost
		a.verb("release", holder).ok(t)
		a.verb("release", last.wait(t).ok(t)).ok(t)
	})
}

func TestStayKeepsThePlace(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.server(nil), w.server(nil)
		holder := a.do("POST", "/v1/acquire", `{"key":"k","ttl":"1h"}`).ok(t)
		const wish = `{"key":"k","wait":"1m","stay":true,"request_id":"wish-of-mine"}`
		first := a.begin("/v1/acquire", wish)
		last := b.begin("/v1/acquire", `{"key":"k","wait":"5m"}`)
		for range 3 {
			time.Sleep(time.Minute)
			if r := first.wait(t).is(t, 503, "come-again"); r.header.Get("Retry-After") != "0" {
				t.Errorf("Retry-After: %v", r.header)
			}
			time.Sleep(placeKept / 2) // a client on a slow network
			first = b.begin("/v1/acquire", wish)
		}
		a.verb("release", holder).ok(t)
		first.wait(t).ok(t)
		last.stillWaits(t)
		last.cancel()
	})
}

func TestKindsOfClaims(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.server(nil)
		first := a.do("POST", "/v1/acquire", `{"key":"r","kind":"shared"}`).ok(t)
		a.do("POST", "/v1/acquire", `{"key":"r","kind":"shared"}`).ok(t)
		a.do("POST", "/v1/acquire", `{"key":"r"}`).is(t, 409, "not-acquired")
		a.do("POST", "/v1/acquire", `{"key":"r","kind":"permits","size":2}`).is(t, 409, "wrong-kind")
		if first.text("kind") != "shared" {
			t.Errorf("the share is %v", first.answer)
		}
		two := a.do("POST", "/v1/acquire", `{"key":"s","kind":"permits","permits":2,"size":3}`).ok(t)
		other := a.do("POST", "/v1/acquire", `{"key":"s","kind":"permits","size":4}`).is(t, 409, "wrong-kind")
		if d := other.text("detail"); !strings.Contains(d, "size 3, not a semaphore of size 4") {
			t.Errorf("another size is refused with %q", d)
		}
		a.do("POST", "/v1/acquire", `{"key":"s","kind":"permits","permits":2,"size":3}`).is(t, 409, "not-acquired")
		a.do("POST", "/v1/acquire", `{"key":"s","kind":"permits","size":3}`).ok(t)
		if two.number("permits") != 2 || two.number("size") != 3 {
			t.Errorf("the permits are %v", two.answer)
		}
		line := a.do("GET", "/v1/line?key=s", "").ok(t)
		if line.text("kind") != "semaphore" || line.number("size") != 3 {
			t.Errorf("the line is %v", line.answer)
		}
	})
}

func TestRequestsThatCannotBe(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.server(nil)
		for _, body := range []string{
			``, `[]`, `{}`, `{"key":""}`, `{"key":"k"} {}`, `{"key":"k","extra":1}`, `{"key":7}`,
			`{"key":"k","ttl":"0s"}`, `{"key":"k","ttl":"30"}`, `{"key":"k","ttl":30}`, `{"key":"k","ttl":"-1s"}`,
			`{"key":"k","ttl":"169h"}`, `{"key":"k","wait":"5m1s"}`, `{"key":"k","wait":"-1s"}`,
			`{"key":"k","kind":"mutex"}`, `{"key":"k","permits":1}`, `{"key":"k","kind":"shared","size":2}`,
			`{"key":"k","kind":"permits"}`, `{"key":"k","kind":"permits","size":0}`,
			`{"key":"k","kind":"permits","size":2,"permits":3}`, `{"key":"k","kind":"permits","size":2,"permits":0}`,
			`{"key":"k","kind":"permits","size":1048576}`, `{"key":"k","request_id":"short"}`,
			`{"key":"k","request_id":"no spaces!"}`, `{"key":"k","note":"a\u0000b"}`,
			`{"key":"k","owner":"` + long(257) + `"}`, `{"key":"k","note":"` + long(1025) + `"}`,
			`{"key":"k","stay":true,"request_id":"wish-of-mine"}`, `{"key":"k","wait":"1s","stay":true}`,
			`{"key":"` + long(257) + `"}`, "{\"key\":\"\xff\"}", `{"key":"\ud800"}`, `{"key":"\udc00\ud800"}`,
		} {
			if r := a.do("POST", "/v1/acquire", body).is(t, 400, "invalid"); r.text("detail") == "" {
				t.Errorf("%s: no detail", body)
			}
		}
		for _, verb := range []string{"renew", "check", "release"} {
			for _, handle := range []string{"", "x", "fl1.a.b.c.d.e.f.g.h.i.aw", "i1.", "i1.a.b.!", "fl1." + long(600)} {
				a.do("POST", "/v1/"+verb, fmt.Sprintf(`{"handle":%q}`, handle)).is(t, 400, "invalid-handle")
			}
		}
		h := a.acquire("k")
		for _, c := range [][2]string{
			{"renew", `{"handle":"` + h.text("handle") + `","done":"ever"}`},
			{"check", `{"handle":"` + h.text("handle") + `","ttl":"3s"}`},
			{"release", `{"handle":"` + h.text("handle") + `","done":"yesterday"}`},
			{"once", `{"key":"o","slot":"7h"}`}, {"once", `{"key":"k","slot":"1h","since":"-1s"}`},
			{"break", `{"key":"k","token":"0","reason":"x"}`},
			{"break", `{"key":"k","token":"` + h.text("token") + `","reason":" "}`},
			{"leave", `{"key":"k"}`}, {"leave", `{"key":"","request_id":"wish-of-mine"}`},
			{"leave", `{"key":"k","request_id":"short"}`},
		} {
			a.do("POST", "/v1/"+c[0], c[1]).is(t, 400, "invalid")
		}
		for _, query := range []string{"", "?key=", "?key=a&key=b", "?key=a&also=b", "?key=" + long(1025)} {
			a.do("GET", "/v1/line"+query, "").is(t, 400, "invalid")
		}
		for _, query := range []string{"?limit=0", "?limit=x", "?limit=10001", "?key=a"} {
			a.do("GET", "/v1/lines"+query, "").is(t, 400, "invalid")
		}
		a.verb("check", h).ok(t)
	})
}

func long(n int) string { return strings.Repeat("x", n) }

func TestLimitsOfOnePrincipal(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.server(&httplock.Options{MaxWaiting: 1, MaxHeld: 2}), w.server(nil)
		first := a.acquire("k1")
		a.acquire("k2")
		a.do("POST", "/v1/acquire", `{"key":"k3"}`).is(t, 429, "too-many")
		b.verb("release", first).ok(t) // elsewhere
		third := a.do("POST", "/v1/acquire", `{"key":"k3","ttl":"10s"}`).ok(t)
		a.do("POST", "/v1/acquire", `{"key":"k4"}`).is(t, 429, "too-many")
		time.Sleep(10 * time.Second)
		a.do("POST", "/v1/acquire", `{"key":"k4"}`).ok(t)
		a.verb("check", third).is(t, 410, "lost")

		c := w.server(&httplock.Options{MaxWaiting: 1})
		waits := c.begin("/v1/acquire", `{"key":"k2","wait":"1m"}`)
		c.do("POST", "/v1/acquire", `{"key":"k2","wait":"1m"}`).is(t, 429, "too-many")
		waits.cancel()
		time.Sleep(2 * time.Second)
		waits = c.begin("/v1/acquire", `{"key":"k2","wait":"1s"}`)
		time.Sleep(time.Second)
		waits.wait(t).is(t, 409, "not-acquired")
	})
}

func TestBreakEndsAClaim(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.server(nil), w.server(nil)
		h := a.acquire("k")
		waits := b.begin("/v1/acquire", `{"key":"k","wait":"1m"}`)
		line := a.do("GET", "/v1/line?key=k", "").ok(t)
		waiter := line.answer["waiters"].([]any)[0].(map[string]any)["token"].(string)
		a.breaks(waiter, "").ok(t)
		if r := waits.wait(t).is(t, 410, "lost"); r.text("reason") == "" {
			t.Errorf("the waiter learns %v", r.answer)
		}
		b.breaks(h.text("token"), "").ok(t)
		b.breaks(h.text("token"), "").is(t, 404, "no-claim")
		if r := a.verb("renew", h).is(t, 410, "lost"); r.text("reason") == "" {
			t.Errorf("the holder learns %v", r.answer)
		}
	})
}

// The holder is told by its renewals, which do not make the lease longer, and finishes its work.
func TestBreakWithNoticeTellsTheHolder(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.server(nil), w.server(nil)
		v := a.view("?key=k", "")
		v.want() // it has seen the line before anybody is in it
		h := a.do("POST", "/v1/acquire", `{"key":"k","owner":"alice","ttl":"1h"}`).ok(t)
		breakIt := func(notice string) result { return a.breaks(h.text("token"), `,"notice":"`+notice+`"`) }
		for _, bad := range []string{"soon", "-1s", "0s", "10000h"} {
			breakIt(bad).is(t, 400, "invalid")
		}
		if r := b.verb("renew", h).ok(t); r.answer["revoked"] != nil {
			t.Errorf("a renewal without notice: %v", r.answer)
		}
		if r := breakIt("30s").ok(t); r.answer["notice_ms"] != 30000.0 || r.answer["broken"] != true {
			t.Errorf("break answers %v", r.answer)
		}
		breakIt("1s").ok(t) // shortens nothing
		if got := v.take(); !slices.Contains(got, "revoked k alice release 7") {
			t.Errorf("a notice is told as %q", got)
		}
		for range 2 {
			time.Sleep(10 * time.Second)
			for _, s := range []*local{a, b} {
				r := s.verb("renew", h).ok(t)
				if left := r.answer["left_ms"].(float64); left > 20000 || r.answer["revoked"] != true || r.text("reason") != "release 7" {
					t.Errorf("a renewal under notice: %v", r.answer)
				}
			}
		}
		b.verb("release", h).ok(t)
		h = a.do("POST", "/v1/acquire", `{"key":"k","owner":"bob"}`).ok(t)
		breakIt("30s").ok(t)
		v.take()
		time.Sleep(32 * time.Second)
		if r := a.verb("renew", h).is(t, 410, "lost"); !strings.Contains(r.text("reason"), "release 7") {
			t.Errorf("the holder learns %v", r.answer)
		}
		if got := v.take(); !slices.Contains(got, "broken k bob release 7") {
			t.Errorf("the end is told as %q", got)
		}
		v.close()
	})
}

func TestBreakWithADelayKeepsTheKeyClosed(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.server(nil)
		h := a.acquire("k")
		for _, bad := range []string{"soon", "-1s", "10000h"} {
			a.breaks(h.text("token"), `,"delay":"`+bad+`"`).is(t, 400, "invalid")
		}
		a.verb("renew", h).ok(t)
		a.breaks(h.text("token"), `,"delay":"10s"`).ok(t)
		a.verb("renew", h).is(t, 410, "lost")
		broken := time.Now()
		a.do("POST", "/v1/acquire", `{"key":"k"}`).is(t, 409, "not-acquired")
		a.do("POST", "/v1/acquire", `{"key":"k","wait":"1m"}`).ok(t)
		if d := time.Since(broken); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("the key was closed for %v", d)
		}
	})
}

// Three outcomes: nobody knows; nothing happened, and a repeat may help; nothing happened, and no
// repeat helps, so there is no Retry-After.
func TestStoreThatRefuses(t *testing.T) {
	for slug, err := range map[string]error{
		"unavailable":     errors.New("connection refused"),
		"refused-for-now": driver.Refused(errors.New("READONLY")),
		"refused":         driver.Permanent(errors.New("NOPERM")),
	} {
		for _, c := range []struct {
			fails faulty.Method
			send  func(a *local, h result) result
		}{
			{faulty.Enter, func(a *local, _ result) result { return a.do("POST", "/v1/acquire", `{"key":"k2"}`) }},
			{faulty.Lines, func(a *local, _ result) result { return a.do("POST", "/v1/once", `{"key":"k2","slot":"1h"}`) }},
			{faulty.Renew, func(a *local, h result) result { return a.verb("renew", h) }},
			{faulty.Lines, func(a *local, h result) result { return a.verb("check", h) }},
			{faulty.Leave, func(a *local, h result) result { return a.verb("release", h) }},
			{faulty.Lines, func(a *local, _ result) result { return a.do("GET", "/v1/lines", "") }},
			{faulty.Lines, func(a *local, _ result) result { return a.do("GET", "/readyz", "") }},
		} {
			inWorld(t, func(w *world) {
				wire := faulty.New(w.store, 1, faulty.Options{})
				w.store = struct {
					*faulty.Backend
					driver.Detacher
				}{wire, w.store.(driver.Detacher)}
				a := w.server(nil)
				h := a.acquire("k")
				for range 100 { // a Client repeats what it may
					wire.Next(c.fails, faulty.Fault{Fail: true, Err: err})
				}
				r := c.send(a, h).is(w, 503, slug)
				if later := r.header.Get("Retry-After") != ""; later != (slug != "refused") {
					w.Errorf("%s: Retry-After is there: %v", slug, later)
				}
			})
		}
	}
}
