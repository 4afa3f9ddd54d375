package console_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/faulty"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/httplock/console"
)

// stream is what a page hears of changes.
type stream struct {
	*httptest.ResponseRecorder
	mu   sync.Mutex
	text string
}

func (s *stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text += string(b)
	return len(b), nil
}

func (s *stream) WriteString(text string) (int, error) { return s.Write([]byte(text)) }

// changes returns how often it was told of a change since the last call.
func (s *stream) changes() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := strings.Count(s.text, "event: change\ndata: {}\n\n")
	s.text = ""
	return n
}

// follow opens the stream of a page until the test ends.
func (s *site) follow(path string) *stream {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	w := &stream{ResponseRecorder: httptest.NewRecorder()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.pages.ServeHTTP(w, httptest.NewRequest(http.MethodGet, base+path, nil).WithContext(ctx))
	}()
	s.Cleanup(func() { cancel(); <-done })
	return w
}

func TestPagesHearOfChanges(t *testing.T) {
	in(t, nil, func(s *site) {
		all, one, other := s.follow("/live"), s.follow("/live?key=nightly"), s.follow("/live?prefix=other/")
		for _, w := range []*stream{all, one, other} {
			if n := w.changes(); n != 1 {
				t.Fatalf("at first there were %d events, want 1", n)
			}
		}
		want := func(what string, n int) {
			t.Helper()
			nextLook()
			if a, o, x := all.changes(), one.changes(), other.changes(); a != n || o != n || x != 0 {
				t.Errorf("%s: the streams told of %d, %d and %d changes, want %d, %d and 0", what, a, o, x, n, n)
			}
		}
		want("nothing", 0)
		lease := s.lock("nightly", fencelock.TTL(30*time.Second))
		want("a lock", 1)
		want("nothing more", 0)
		s.wait("nightly")
		want("a waiter", 1)
		time.Sleep(6 * time.Second)
		all.changes()
		one.changes()
		time.Sleep(5 * time.Second) // a renewal after ten seconds
		if all.changes() == 0 || one.changes() == 0 {
			t.Error("the streams told of no renewal")
		}
		lease.Release(s.Context())
		nextLook()
		if all.changes() == 0 || one.changes() == 0 || other.changes() != 0 {
			t.Error("the streams did not tell of the release")
		}
		s.store.Set(down)
		nextLook()
		steps.Same(t, "the streams did not tell that the store is down", other.changes(), 1)
	})
}

func TestStreamsEndWithTheConsole(t *testing.T) {
	in(t, nil, func(s *site) {
		s.follow("/live")
		synctest.Wait()
		s.pages.Close() // the test's cleanup waits for the stream
	})
}

// A store that does not answer is no empty store, and the page comes back by itself.
func TestStoreDown(t *testing.T) {
	in(t, nil, func(s *site) {
		lease := s.lock("nightly", fencelock.Owner("alice@a"))
		s.get("/").says("alice@a").lacks("does not answer")
		s.store.Set(down)
		nextLook()
		since := time.Now().UTC().Add(-100 * time.Millisecond)
		time.Sleep(7 * time.Second)
		for _, path := range []string{"/", "/key?key=nightly"} {
			s.get(path).says("The store does not answer since "+since.Format(time.TimeOnly)+" UTC (7s)",
				"Below is what was true at", "alice@a")
		}
		s.request("GET", "/break?key=nightly&token="+lease.Token().String(), nil).want(http.StatusServiceUnavailable)
		time.Sleep(20 * time.Second)
		lease.Release(s.Context())
		s.store.Set(faulty.Options{})
		nextLook()
		s.get("/").says("Nobody holds a lock").lacks("does not answer")
		s.get("/key?key=nightly").says("ended while the store did not answer", "alice@a")
	})
}

// A store that answers and refuses is not said to give no answer.
func TestStoreThatRefuses(t *testing.T) {
	in(t, nil, func(s *site) {
		lease := s.lock("nightly", fencelock.Owner("alice@a"))
		s.get("/").says("alice@a")
		breakPath := "/break?key=nightly&token=" + lease.Token().String()
		form := s.get(breakPath)
		s.store.Next(faulty.Break, full)
		s.request("POST", form.href("break?"), fields(form, "hangs", "alice@a")).want(http.StatusServiceUnavailable).
			says("The store refuses for now", "Nothing was changed").lacks("nobody knows")
		s.store.Next(faulty.Lines, full)
		nextLook()
		for _, path := range []string{"/", "/key?key=nightly"} {
			s.get(path).says("that it cannot be read now", "Below is what was true at", "alice@a").lacks("does not answer")
		}
		s.store.Next(faulty.Lines, full)
		s.request("GET", breakPath, nil).want(http.StatusServiceUnavailable).
			says("The store refuses for now", "Nothing was changed").lacks("does not answer")
		nextLook()
		s.get("/").says("alice@a").lacks("cannot be read now")
	})
}

// A store that says nothing at all is noticed after seconds, and when it is back, too.
func TestStoreMute(t *testing.T) {
	in(t, nil, func(s *site) {
		s.lock("nightly")
		s.get("/").says("nightly")
		s.store.Pause()
		time.Sleep(6 * time.Second)
		s.get("/").says("The store does not answer since", "nightly")
		time.Sleep(time.Minute)
		s.store.Resume()
		time.Sleep(6 * time.Second)
		s.get("/").says("nightly").lacks("does not answer")
	})
}

func TestStoreDownFromTheBeginning(t *testing.T) {
	in(t, nil, func(s *site) {
		s.store.Set(down)
		s.get("/").says("The store does not answer since", "Nothing has been seen of it so far").lacks("Nobody holds a lock")
		s.store.Set(faulty.Options{})
		nextLook()
		s.get("/").says("Nobody holds a lock").lacks("does not answer")
	})
}

// Nobody looks for nobody: without visitors the store is left alone.
func TestWatchingEndsWithoutVisitors(t *testing.T) {
	looksInAnHour := func(s *site) int64 {
		s.get("/")
		time.Sleep(5 * time.Minute)
		before := s.store.looks.Load()
		time.Sleep(time.Hour)
		return s.store.looks.Load() - before
	}
	in(t, nil, func(s *site) {
		if n := looksInAnHour(s); n != 0 {
			t.Errorf("it looked %d times for nobody", n)
		}
		s.lock("nightly")
		s.get("/").says("nightly")
	})
	in(t, &console.Options{Always: true}, func(s *site) {
		if n := looksInAnHour(s); n < 3500 {
			t.Errorf("it looked %d times in an hour; Always wants 3600", n)
		}
	})
	in(t, nil, func(s *site) {
		s.follow("/live")
		if n := looksInAnHour(s); n < 3500 {
			t.Errorf("it looked %d times in an hour for an open page; want 3600", n)
		}
	})
}

// The history tells a release from a loss and from a waiter that gave up.
func TestHistoryTellsHowClaimsEnd(t *testing.T) {
	in(t, &console.Options{Always: true}, func(s *site) {
		nextLook()
		dies, err := s.client.Lock(s.Context(), "dies", fencelock.Owner("dave@d"), fencelock.NoRenewal(), fencelock.TTL(5*time.Second))
		steps.Must(t, err)
		s.lock("gives-up", fencelock.Owner("alice@a"))
		ctx, cancel := context.WithTimeout(s.Context(), 3*time.Second)
		defer cancel()
		if _, err := s.client.Lock(ctx, "gives-up", fencelock.Owner("bob@b")); err == nil {
			t.Fatal("the lock was held twice")
		}
		<-dies.Context().Done()
		nextLook()
		nextLook()
		s.get("/key?key=dies").says("lost: its lease ran out", "dave@d", "5s", "acquired", "dave@d")
		s.get("/key?key=gives-up").says("left the line", "waits").lacks("released")
	})
}
