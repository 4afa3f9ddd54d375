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
