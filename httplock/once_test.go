package httplock_test

import (
	"fmt"
	"testing"
	"time"
)

func finish(l *local, h result) result {
	l.Helper()
	return l.do("POST", "/v1/release", fmt.Sprintf(`{"handle":%q,"done":%q}`, h.text("handle"), h.text("slot")))
}

func TestSlotIsRunOnce(t *testing.T) {
	for name, hide := range map[string]bool{"handles of the store": false, "kept by the server": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				if hide {
					w.store = plain{w.store}
				}
				a := w.server(nil)
				hour := time.Now().UTC().Truncate(time.Hour).Format(time.RFC3339)
				const run = `{"key":"k","slot":"1h","owner":"alice"}`
				failed := a.do("POST", "/v1/once", run).ok(t)
				if failed.text("slot") != hour {
					t.Errorf("the grant is %v", failed.answer)
				}
				a.do("POST", "/v1/once", run).is(t, 409, "not-acquired")
				waits := a.begin("/v1/once", `{"key":"k","slot":"1h","wait":"1m","owner":"bob"}`)
				a.verb("release", failed).ok(t) // the slot stays open
				second := waits.wait(t).ok(t)
				waits = a.begin("/v1/once", `{"key":"k","slot":"1h","wait":"1m"}`)
				if r := finish(a, second).ok(t); r.answer["released"] != true {
					t.Errorf("finished: %v", r.answer)
				}
				for _, done := range []result{waits.wait(t), a.do("POST", "/v1/once", run)} {
					done.ok(t)
					if done.answer["done"] != true || done.text("slot") != hour || done.text("done_by") != "bob" ||
						done.text("done_at") == "" || done.text("key") != "k" {
						t.Errorf("a done slot is answered by %v", done.answer)
					}
				}
				finish(a, second).is(t, 410, "lost")
				time.Sleep(time.Hour)
				next := a.do("POST", "/v1/once", run).ok(t)
				if next.text("slot") <= hour {
					t.Errorf("the next slot is %v", next.answer)
				}
				finish(a, next).ok(t)
				line := a.do("GET", "/v1/line?key=k", "").ok(t)
				if run := line.answer["last_run"].(map[string]any); run["slot"] != next.text("slot") || run["owner"] != "alice" {
					t.Errorf("the last run is %v", run)
				}
				old := a.do("POST", "/v1/once", fmt.Sprintf(`{"key":"k","slot":%q}`, hour)).ok(t)
				if old.answer["done"] != true || old.text("slot") != next.text("slot") {
					t.Errorf("an earlier slot: %v", old.answer)
				}
			})
		})
	}
}

func TestSlotEver(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.server(nil)
		h := a.do("POST", "/v1/once", `{"key":"k","slot":"ever"}`).ok(t)
		finish(a, h).ok(t)
		time.Sleep(24 * time.Hour)
		if r := a.do("POST", "/v1/once", `{"key":"k","slot":"ever"}`).ok(t); r.answer["done"] != true || r.text("slot") != "ever" {
			t.Errorf("a second time: %v", r.answer)
		}
		share := a.do("POST", "/v1/acquire", `{"key":"s","kind":"shared"}`).ok(t)
		a.do("POST", "/v1/release", fmt.Sprintf(`{"handle":%q,"done":"ever"}`, share.text("handle"))).is(t, 400, "invalid-handle")
	})
}

// A request that waits across the turn of the hour, and comes again, is for its own slot.
func TestComeAgainOfOnceHasItsSlot(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.server(nil), w.server(nil)
		a.do("POST", "/v1/once", `{"key":"k","slot":"1h","ttl":"3h"}`).ok(t)
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(59 * time.Minute)))
		const wish = `{"key":"k","slot":%q,"wait":"2m","request_id":"wish-of-mine","stay":true}`
		waits := a.begin("/v1/once", fmt.Sprintf(wish, "1h"))
		time.Sleep(2 * time.Minute)
		again := waits.wait(t).is(t, 503, "come-again")
		waits = b.begin("/v1/once", fmt.Sprintf(wish, again.text("slot")))
		time.Sleep(3 * time.Hour)
		got := waits.wait(t)
		if got.status != 200 && got.slug() != "come-again" || got.text("slot") != again.text("slot") {
			t.Errorf("the slot was %s, and is %v", again.text("slot"), got.answer)
		}
	})
}
