// Package testclient makes Clients for tests, and servers of their locks.
package testclient

import (
	"net/http"
	"net/http/httptest"
	"reflect"
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

// EachHook calls f with each of the hooks, and the name of its field. None may be nil.
func EachHook(t testing.TB, hooks fencelock.Hooks, f func(name string, hook func(fencelock.Event))) {
	t.Helper()
	all := reflect.ValueOf(hooks)
	for i := range all.NumField() {
		name := all.Type().Field(i).Name
		hook, ok := all.Field(i).Interface().(func(fencelock.Event))
		if !ok || hook == nil {
			t.Fatalf("nobody hears %s", name)
		}
		f(name, hook)
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
