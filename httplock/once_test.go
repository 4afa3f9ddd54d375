package httplock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// eachWayToKeep runs a test on a store that can pass leases on, and on one where the server keeps
// them.
func eachWayToKeep(t *testing.T, f func(t *testing.T, w *world, kept bool)) {
	for name, kept := range map[string]bool{"handles of the store": false, "kept by the server": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				if kept {
					w.store = plain{w.store}
				}
				f(t, w, kept)
			})
		})
	}
}

// awaitEndOfHour waits until a second before the hour is over, and returns its slot.
func awaitEndOfHour() string {
	hour := time.Now().UTC().Truncate(time.Hour)
	time.Sleep(time.Until(hour.Add(time.Hour)) - time.Second)
	return hour.Format(time.RFC3339)
}

func finish(l *local, h result) result {
	l.Helper()
	return l.do("POST", "/v1/release", fmt.Sprintf(`{"handle":%q,"done":%q}`, h.text("handle"), h.text("slot")))
}

// checkDone checks the answer to a call for a slot of k that bob has done.
func checkDone(t *testing.T, done result, slot string) {
	t.Helper()
	done.ok(t)
	if done.answer["done"] != true || done.text("slot") != slot || done.text("done_by") != "bob" ||
		done.text("done_at") == "" || done.text("key") != "k" {
		t.Errorf("a done slot is answered by %v", done.answer)
	}
}

func TestSlotIsRunOnce(t *testing.T) {
	eachWayToKeep(t, func(t *testing.T, w *world, _ bool) {
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
			checkDone(t, done, hour)
		}
		for _, verb := range []string{"check", "renew"} {
			a.verb(verb, second).is(t, 410, "lost")
		}
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
	})
}

// A later slot is done: before the request, or while the request waited.
func TestSlotThatWasPassedIsNotCalledDone(t *testing.T) {
	eachWayToKeep(t, func(t *testing.T, w *world, _ bool) {
		a := w.server(nil)
		late, early := "2026-11-25T13:00:00Z", "2026-11-25T12:00:00Z"
		run := a.do("POST", "/v1/once", fmt.Sprintf(`{"key":"k","slot":%q,"owner":"alice"}`, late)).ok(t)
		wish := fmt.Sprintf(`{"key":"k","slot":%q,"wait":"1m"}`, early)
		waits := a.begin("/v1/once", wish)
		finish(a, run).ok(t)
		for _, passed := range []result{waits.wait(t), a.do("POST", "/v1/once", wish)} {
			passed.is(t, 409, "slot-passed")
			if passed.text("slot") != early || passed.text("done_slot") != late || passed.text("done_by") != "alice" ||
				passed.text("done_at") == "" || passed.text("request_id") == "" {
				t.Errorf("a slot that was passed: %v", passed.answer)
			}
		}
		a.do("POST", "/v1/acquire", `{"key":"k"}`).ok(t) // nothing holds the key
		if ever := a.do("POST", "/v1/once", `{"key":"k","slot":"ever"}`).ok(t); ever.answer["done"] != true {
			t.Errorf("a run forever, after one of a slot: %v", ever.answer)
		}
	})
}

func TestSlotEver(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.server(nil)
		h := a.do("POST", "/v1/once", `{"key":"k","slot":"ever"}`).ok(t)
		other := fmt.Sprintf(`{"handle":%q,"done":"9999-01-01T00:00:00Z"}`, h.text("handle"))
		a.do("POST", "/v1/release", other).is(t, 400, "invalid")
		finish(a, h).ok(t)
		time.Sleep(24 * time.Hour)
		if r := a.do("POST", "/v1/once", `{"key":"k","slot":"ever"}`).ok(t); r.answer["done"] != true || r.text("slot") != "ever" {
			t.Errorf("a second time: %v", r.answer)
		}
		share := a.do("POST", "/v1/acquire", `{"key":"s","kind":"shared"}`).ok(t)
		a.do("POST", "/v1/release", fmt.Sprintf(`{"handle":%q,"done":"ever"}`, share.text("handle"))).is(t, 400, "invalid-handle")
	})
}

// A request that waits across the turn of the hour, and comes again, is for its own slot, whether it names that.
func TestComeAgainOfOnceHasItsSlot(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.server(nil), w.server(nil)
		slot := awaitEndOfHour()
		holder := a.acquire("k")
		const run = `{"key":"k","slot":%q,"wait":"2s","stay":true,"request_id":"run-of-mine","note":"nightly"}`
		waits := a.begin("/v1/once", fmt.Sprintf(run, "1h"))
		for _, asked := range []string{"1h", slot} {
			time.Sleep(2 * time.Second)
			steps.Same(t, "slot", waits.wait(t).is(t, 503, "come-again").text("slot"), slot)
			waits = b.begin("/v1/once", fmt.Sprintf(run, asked))
			line := b.do("GET", "/v1/line?key=k", "").ok(t)
			if c := line.answer["waiters"].([]any)[0].(map[string]any); c["slot"] != slot || c["note"] != "nightly" {
				t.Errorf("the claim is %v", c)
			}
		}
		b.verb("release", holder).ok(t)
		steps.Same(t, "slot", waits.wait(t).ok(t).text("slot"), slot)
	})
}

// A client whose connection broke repeats its request. By then the next slot has begun.
func TestRepeatedOnceHasItsSlot(t *testing.T) {
	const run = `{"key":"k","slot":"1h","ttl":"30m","wait":"1m","request_id":"run-of-mine","owner":"alice","note":"nightly"}`
	eachWayToKeep(t, func(t *testing.T, w *world, kept bool) {
		a := w.server(nil)
		b := a // only this one keeps the lease
		if !kept {
			b = w.server(nil)
		}
		awaitEndOfHour()
		first := a.do("POST", "/v1/once", run).ok(t)
		time.Sleep(2 * time.Second)
		again := b.do("POST", "/v1/once", run).ok(t)
		if again.text("token") != first.text("token") || again.text("slot") != first.text("slot") {
			t.Errorf("the grant was %v, and is %v", first.answer, again.answer)
		}
		b.do("POST", "/v1/once", `{"key":"k","slot":"1h"}`).is(t, 409, "not-acquired")
		finish(b, again).ok(t)
		if done := b.do("POST", "/v1/once", `{"key":"k","slot":"1h"}`).ok(t); done.answer["done"] == true {
			t.Errorf("the slot that nobody has run: %v", done.answer)
		}
	})
}

// A client waited at a server of ZooKeeper or a quorum. Its connection broke, and it repeated its request when the next
// slot had begun, at the same server or at another one, which it told how old the request is. Its place in line was
// gone, and so was its slot.
func TestRequestThatLostItsPlaceKeepsItsSlot(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		eachWayToKeep(t, func(t *testing.T, w *world, _ bool) {
			a, age := w.server(nil), ""
			b := a
			if elsewhere {
				b, age = w.server(nil), `,"since":"10s"`
			}
			slot := awaitEndOfHour()
			a.acquire("k")
			const run = `{"key":"k","slot":"1h","wait":"1m","request_id":"run-of-mine"`
			a.begin("/v1/once", run+"}").cancel()
			time.Sleep(2 * placeKept)
			again := b.begin("/v1/once", run+age+"}")
			time.Sleep(30 * time.Second) // the holder has gone
			steps.Same(t, "slot", again.wait(t).ok(t).text("slot"), slot)
		})
	}
}

func TestRepeatedReleaseKnowsWhetherTheSlotIsDone(t *testing.T) {
	eachWayToKeep(t, func(t *testing.T, w *world, _ bool) {
		a := w.server(nil)
		run := a.do("POST", "/v1/once", `{"key":"k","slot":"1h"}`).ok(t)
		a.verb("release", run).ok(t)
		finish(a, run).is(t, 410, "lost")
		broken := a.do("POST", "/v1/once", `{"key":"k","slot":"1h"}`).ok(t)
		a.breaks(broken.text("token"), "").ok(t)
		time.Sleep(time.Minute)
		finish(a, broken).is(t, 410, "lost")
		other := a.do("POST", "/v1/once", `{"key":"k","slot":"1h"}`).ok(t)
		finish(a, other).ok(t)
		finish(a, broken).is(t, 410, "lost")
		finish(a, other).ok(t)
	})
}
