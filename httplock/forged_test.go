package httplock_test

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/httplock"
)

// Fields of a handle.
const (
	handleCheck = 1
	handleID    = 2
	handleToken = 4
	handleTTL   = 8
)

// forge changes one field of a handle, and its check.
func (w *world) forge(handle string, field int, value string) string {
	f := strings.Split(handle, ".")
	f[field] = value
	info := w.store.Info()
	sum := crc32.ChecksumIEEE([]byte(info.Name + "\x00" + info.Namespace + "\x00" + strings.Join(f[handleID:], ".")))
	f[handleCheck] = strconv.FormatUint(uint64(sum), 36)
	return strings.Join(f, ".")
}

func TestHandleIsNotBelieved(t *testing.T) {
	inWorld(t, func(w *world) {
		var log bytes.Buffer
		a := w.server(&httplock.Options{Audit: slog.New(slog.NewJSONHandler(&log, nil))})
		b := w.server(nil)
		h := a.do("POST", "/v1/acquire", `{"key":"k","ttl":"1m"}`).ok(t)
		handle := h.text("handle")
		body := func(handle string) string { return fmt.Sprintf(`{"handle":%q}`, handle) }
		if w.forge(handle, handleTTL, strings.Split(handle, ".")[handleTTL]) != handle {
			t.Fatal("this test forges no handles")
		}

		year := strconv.FormatInt((366 * 24 * time.Hour).Milliseconds(), 36)
		for _, ttl := range []string{year, "0", "-1", "zzzzzzzzzzzz"} {
			for _, verb := range []string{"renew", "release", "check"} {
				a.do("POST", "/v1/"+verb, body(w.forge(handle, handleTTL, ttl))).is(t, 400, "invalid-handle")
			}
		}
		for field, value := range map[int]string{handleToken: "1y2p0ij32e8e7", handleID: "MADEUPMADEUPMADEUPMADEUPMA"} {
			for _, verb := range []string{"renew", "release", "check"} {
				a.do("POST", "/v1/"+verb, body(w.forge(handle, field, value))).is(t, 410, "lost")
			}
			done := fmt.Sprintf(`{"handle":%q,"done":"ever"}`, w.forge(handle, field, value))
			a.do("POST", "/v1/release", done).is(t, 410, "lost")
		}
		if text := log.String(); strings.Contains(text, "9223372036854775807") ||
			strings.Count(text, `"token":"0"`) != 6 || strings.Count(text, h.text("token")) != 1 {
			t.Errorf("the audit log has tokens of forged handles:\n%s", text)
		}

		b.verb("check", h).ok(t)
		b.verb("renew", h).ok(t)
		b.verb("release", h).ok(t) // at a server that has not granted it
		a.verb("release", h).is(t, 410, "lost")
	})
}

// A client that acquires and releases with the longest ttl leaves a note of each request ID. The
// notes must not stay for a week.
func TestNotesOfReleasedClaimsAreBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.server(nil)
		const wish = `{"key":"k","ttl":"168h","request_id":"wish-of-mine"}`
		h := a.do("POST", "/v1/acquire", wish).ok(t)
		a.verb("release", h).ok(t)
		time.Sleep(14 * time.Minute)
		a.do("POST", "/v1/acquire", wish).is(t, 410, "lost") // a late copy of the request
		time.Sleep(2 * time.Minute)
		a.verb("release", a.do("POST", "/v1/acquire", wish).ok(t)).ok(t)

		holder := a.do("POST", "/v1/acquire", `{"key":"k"}`).ok(t)
		const refused = `{"key":"k","ttl":"168h","wait":"1s","request_id":"wish-refused"}`
		wait := a.begin("/v1/acquire", refused)
		time.Sleep(2 * time.Second)
		wait.wait(t).is(t, 409, "not-acquired")
		a.verb("release", holder)
		time.Sleep(16 * time.Minute)
		a.do("POST", "/v1/acquire", refused).ok(t)
	})
}

const wish = `"key":"k","ttl":"1m","request_id":"wish-of-mine"`

// A client used one request_id for the share of a reader and then for the whole lock, or for acquire and then for
// once. It was shown the grant of the first request as that of the second. The first one goes on.
func TestRequestIDIsForOneRequest(t *testing.T) {
	const nine, one = `,"kind":"permits","size":9,"permits":9`, `,"kind":"permits","size":1`
	const five, ofEight = `,"kind":"permits","size":9,"permits":5`, `,"kind":"permits","size":8,"permits":5`
	const shared, slot = `,"kind":"shared"`, `,"slot":"1h"`
	for name, c := range map[string]struct{ first, second, holder string }{
		"a reader, then a writer":   {first: shared},
		"a writer, then a reader":   {second: shared},
		"5 permits, then 9":         {five, nine, nine},
		"of 9 permits, then of 8":   {five, ofEight, nine},
		"a permit, then a share":    {one, shared, one},
		"acquire, then once":        {first: `,"note":"slot=ever of mine"`, second: slot},
		"once, then acquire":        {first: slot},
		"once, then a stay in line": {first: slot, second: `,"stay":true`},
	} {
		for i := range 4 {
			kept, waits := i&1 > 0, i&2 > 0
			t.Run(fmt.Sprintf("%s, kept %v, waits %v", name, kept, waits), func(t *testing.T) {
				inWorld(t, func(w *world) {
					if kept {
						w.store = plain{w.store}
					}
					holder := ""
					if waits {
						holder = fmt.Sprintf(`{"key":"k"%s}`, c.holder)
					}
					w.reuse(kept, holder, fmt.Sprintf(`{%s,"wait":"1m"%s}`, wish, c.first), fmt.Sprintf(`{%s,"wait":"10s"%s}`, wish, c.second))
				})
			})
		}
	}
}

// reuse sends two requests with one request_id, after that of a holder if there is one.
func (w *world) reuse(kept bool, holder, first, second string) {
	w.Helper()
	path := func(body string) string {
		if strings.Contains(body, `"slot":`) {
			return "/v1/once"
		}
		return "/v1/acquire"
	}
	a, b := w.server(nil), w.server(nil)
	var held result
	if holder != "" {
		held = a.do("POST", "/v1/acquire", holder).ok(w)
	}
	begun := a.begin(path(first), first)
	for _, s := range []*local{a, b} {
		r := s.do("POST", path(second), second).is(w, 409, "request-id-reused")
		if r.text("request_id") != "wish-of-mine" || r.text("key") != "k" {
			w.Errorf("the problem is about %v", r.answer)
		}
	}
	if holder != "" {
		begun.stillWaits(w)
		a.verb("release", held).ok(w)
	}
	h := begun.wait(w).ok(w)
	if !kept { // otherwise the lease stays with its server
		b.do("POST", path(first), first).ok(w)
	}
	if again := a.do("POST", path(first), first).ok(w); again.text("token") != h.text("token") {
		w.Errorf("the first request again: %v", again.answer)
	}
	a.verb("renew", h).ok(w)
	a.verb("release", h).ok(w)
	time.Sleep(time.Minute)
	a.do("POST", path(second), second).is(w, 409, "request-id-reused")
}

// A request waits at one server, is repeated at another one, and its wait at the first one is over: its claim has
// left the line. The repeated one had no lock, and is not told to stop its work.
func TestWaitThatIsOverElsewhereIsNotCalledALoss(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.server(nil), w.server(nil)
		holder := a.acquire("k")
		first := a.begin("/v1/acquire", fmt.Sprintf(`{%s,"wait":"10s"}`, wish))
		again := b.begin("/v1/acquire", fmt.Sprintf(`{%s,"wait":"1m"}`, wish))
		time.Sleep(15 * time.Second)
		first.wait(t).is(t, 409, "not-acquired")
		r := again.wait(t).is(t, 410, "lost")
		if text := r.text("detail"); !strings.Contains(text, "was not granted") || strings.Contains(text, "Stop the work") {
			t.Errorf("it is told: %s", text)
		}
		a.verb("release", holder).ok(t)
		a.verb("release", a.acquire("k")).ok(t)
	})
}

// leave names a request by its request_id alone, and ends it whatever it is for.
func TestLeaveEndsARequestOfAnyKind(t *testing.T) {
	for request, path := range map[string]string{
		`"kind":"shared"`: "acquire", `"kind":"permits","size":9,"permits":5`: "acquire", `"kind":"exclusive"`: "acquire", `"slot":"1h"`: "once",
	} {
		inWorld(t, func(w *world) {
			a, b := w.server(nil), w.server(nil)
			h := a.do("POST", "/v1/"+path, fmt.Sprintf("{%s,%s}", wish, request)).ok(t)
			b.do("POST", "/v1/leave", `{"key":"k","request_id":"wish-of-mine"}`).ok(t)
			a.verb("check", h).is(t, 410, "lost")
			a.verb("release", a.acquire("k")).ok(t)
		})
	}
}
