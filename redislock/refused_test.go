package redislock

import (
	"errors"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
)

// A server that refuses for now says so, and has done nothing: not for the client that go-redis
// makes by default either, which would send the request again.
func TestServerThatRefusesHasDoneNothing(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := newProxy(t, s)
	b := patient(t, p.Addr(), nil)
	other := connect(t, s, nil)
	leave(t, other, enter(t, other, mutex("the server knows the scripts")))
	ask(t, s, "CONFIG", "SET", "min-replicas-to-write", "1")
	sent := 0
	p.onScript(enterScript, func(nth int) faultproxy.Action { sent = nth; return faultproxy.Pass })
	if _, err := b.Enter(t.Context(), mutex("key")); !errors.Is(err, driver.ErrRefused) || permanent(err) {
		t.Errorf("Enter answered %v; want driver.ErrRefused", err)
	}
	p.Handle(nil)
	steps.Same(t, "times that Enter was sent", sent, 1)

	// A first copy that is lost on the way may yet be applied: what then is refused, is not
	// the whole story.
	p.onScript(enterScript, func(nth int) faultproxy.Action {
		if nth == 1 {
			return faultproxy.LateRequest
		}
		return faultproxy.Pass
	})
	if _, err := b.Enter(t.Context(), mutex("key")); err == nil || errors.Is(err, driver.ErrRefused) {
		t.Errorf("Enter, sent twice, answered %v; want an error with an unknown outcome", err)
	}
	p.Handle(nil)
	ask(t, s, "CONFIG", "SET", "min-replicas-to-write", "0")
	inLine(t, "a refused Enter leaves nothing", other, "key", 0)
	p.Resume() // from here on the first copy may be applied
}
