package httplock_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/httplock"
)

// An operator takes a line out of the tokens file and sends SIGHUP.
func TestRevokedTokenEndsStreamsAndWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		of, lines := map[string]string{}, map[string]string{}
		for _, name := range []string{"leaver", "stays"} {
			token, line := httplock.NewToken(name)
			of[name], lines[name] = token, strings.Join(append(strings.Fields(line)[:2], "all", "*\n"), " ")
		}
		tokens, err := httplock.ReadTokens(strings.NewReader(lines["leaver"] + lines["stays"]))
		steps.Must(t, err)
		s := w.server(&httplock.Options{Tokens: tokens})
		as := func(name string) *local {
			l := *s
			l.bearer = of[name]
			return &l
		}
		load := func(text string) {
			steps.Must(t, tokens.Load(strings.NewReader(text)))
			synctest.Wait()
		}
		as("stays").acquire("k")
		const wish = `{"key":"k","wait":"5m"}`
		gone, stays := as("leaver").begin("/v1/acquire", wish), as("stays").begin("/v1/acquire", wish)
		goneView, staysView := as("leaver").view("", ""), as("stays").view("", "")
		time.Sleep(3 * time.Second)

		load(lines["stays"])
		gone.wait(t).is(t, 401, "unauthenticated")
		stays.stillWaits(t)
		if !ended(goneView) || ended(staysView) {
			t.Errorf("the stream of the revoked token has ended: %v; the other one: %v", ended(goneView), ended(staysView))
		}
		as("leaver").do("POST", "/v1/acquire", wish).is(t, 401, "unauthenticated")

		load(strings.Replace(lines["stays"], "all *", "look other/", 1))
		stays.wait(t).is(t, 403, "forbidden")
		if ended(staysView) {
			t.Error("a stream that may go on, with fewer keys, has ended")
		}
		load(strings.Replace(lines["stays"], "all *", "acquire *", 1))
		if !ended(staysView) {
			t.Error("the stream of a principal that may not look goes on")
		}
	})
}

func ended(v *viewer) bool {
	select {
	case <-v.done:
		return true
	default:
		return false
	}
}
