// Package testclient makes Clients for tests, and servers of their locks.
package testclient

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// New returns a Client on b, or ends the test.
func New(t testing.TB, b driver.Backend, o *fencelock.Options) *fencelock.Client {
	t.Helper()
	c, err := fencelock.New(b, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Lock takes the lock of key with c, or ends the test.
func Lock(t testing.TB, c *fencelock.Client, key string, opts ...fencelock.Option) *fencelock.Lease {
	t.Helper()
	l, err := c.Lock(t.Context(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// On returns an Options.OnEvent that calls f with the events of one type.
func On(t fencelock.EventType, f func(fencelock.Event)) func(fencelock.Event) {
	return func(e fencelock.Event) {
		if e.Type == t {
			f(e)
		}
	}
}

// Serve serves s on loopback until the test ends. drain is called before its connections are
// closed.
func Serve(t testing.TB, s *http.Server, drain func()) *httptest.Server {
	t.Helper()
	web := httptest.NewUnstartedServer(nil)
	web.Config = s
	web.Start()
	t.Cleanup(func() {
		drain()
		web.CloseClientConnections()
		web.Close()
	})
	return web
}
