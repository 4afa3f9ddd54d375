package redislock

import (
	"strconv"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// proxied is a server behind a proxy that judges each command.
type proxied struct {
	*faultproxy.Proxy
	t testing.TB
}

func newProxy(t testing.TB, s *testserver.Server) proxied {
	t.Helper()
	return proxied{faultproxy.Start(t, s.Addr(), faultproxy.Redis), t}
}

// client opens a client that goes through the proxy.
func (p proxied) client(change ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{Addr: p.Addr()}
	for _, f := range change {
		f(o)
	}
	c := redis.NewClient(o)
	p.t.Cleanup(func() { c.Close() })
	return c
}

// through opens a Backend that goes through a proxy of its own.
func through(t testing.TB, s *testserver.Server, change ...func(*redis.Options)) (proxied, *Backend) {
	t.Helper()
	p := newProxy(t, s)
	return p, closing(t, New(p.client(change...), nil))
}

// onScript judges each call of a script, with how many there have been.
func (p proxied) onScript(s *script, judge func(nth int) faultproxy.Action) {
	n := 0
	p.Handle(func(r *faultproxy.Request) faultproxy.Action {
		if !isScript(s, r) {
			return faultproxy.Pass
		}
		n++
		return judge(n)
	})
}

// names returns the names of the commands since Forget, and the most that came in one piece. It leaves out HELLO, which
// goes out ahead of a request once a second.
func (p proxied) names() (names []string, burst int) {
	for _, r := range p.Requests() {
		if strings.EqualFold(r.Args()[0], "hello") {
			continue
		}
		names = append(names, strings.ToLower(r.Args()[0]))
		burst = max(burst, r.Burst)
	}
	return names, burst
}

// isScript reports whether a command runs the script.
func isScript(s *script, r *faultproxy.Request) bool {
	args := r.Args()
	return len(args) > 1 && (args[1] == s.sha || args[1] == s.text)
}

// prefixed writes an ID as messages have it.
func prefixed(id string) string { return strconv.Itoa(len(id)) + ":" + id }
