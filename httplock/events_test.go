package httplock_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/httplock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// viewer reads a stream of events.
type viewer struct {
	*local
	cancel context.CancelFunc
	lines  chan string
	lastID string
	done   chan struct{} // closed at the end of the stream
}

func (l *local) view(query, lastID string) *viewer {
	l.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, "GET", "http://localhost/v1/events"+query, nil)
	steps.Must(l, err)
	r.Header.Set("Last-Event-ID", lastID)
	r.Header.Set("Authorization", "Bearer "+l.bearer)
	res, err := l.dialer(l.listen(l.HTTPServer()), nil).Do(r)
	steps.Must(l, err)
	v := &viewer{local: l, cancel: cancel, lines: make(chan string, 1000), done: make(chan struct{})}
	go func() {
		defer close(v.done)
		defer close(v.lines)
		for s := bufio.NewScanner(res.Body); s.Scan(); {
			v.lines <- s.Text()
		}
	}()
	return v
}

// take returns the events that have come: "acquired k alice".
func (v *viewer) take() []string {
	v.Helper()
	synctest.Wait()
	all := []string{}
	name := ""
	for {
		select {
		case line, open := <-v.lines:
			if !open {
				return all
			}
			field, value, _ := strings.Cut(line, ": ")
			switch field {
			case "id":
				v.lastID = value
			case "event":
				name = value
			case "data":
				all = append(all, v.describe(name, value))
			}
		default:
			return all
		}
	}
}

func (v *viewer) describe(name, data string) string {
	var d struct {
		Key, Owner, Reason string
		Holders, Waiters   []any
	}
	if err := json.Unmarshal([]byte(data), &d); err != nil {
		v.Errorf("%s: %v", data, err)
	}
	switch name {
	case "line":
		return fmt.Sprintf("line %s %d %d", d.Key, len(d.Holders), len(d.Waiters))
	case "reset":
		return name
	}
	return strings.TrimSpace(strings.Join([]string{name, d.Key, d.Owner, d.Reason}, " "))
}

func (v *viewer) want(events ...string) {
	v.Helper()
	if got := v.take(); !slices.Equal(got, events) {
		v.Errorf("the events are %q, want %q", got, events)
	}
}

func (v *viewer) close() {
	v.cancel()
	for range v.lines {
	}
}

func TestEventsTellWhatHappens(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.server(nil), w.server(nil)
		first := b.do("POST", "/v1/acquire", `{"key":"k","owner":"alice"}`).ok(t)
		v := a.view("?prefix=k", "")
		v.want("line k 1 0") // the lines as they are
		waits := a.begin("/v1/acquire", `{"key":"k","owner":"bob","wait":"5m"}`)
		other := a.acquire("other")
		time.Sleep(1100 * time.Millisecond)
		v.want("waiting k bob", "line k 1 1")
		b.verb("release", first).ok(t) // elsewhere; bob is granted here
		second := waits.wait(t).ok(t)
		if got := v.take(); !slices.Contains(got, "acquired k bob") || !slices.Contains(got, "released k alice") {
			t.Errorf("a hand-over is told as %q", got)
		}
		a.verb("release", second).ok(t)
		v.want("released k bob", "line k 0 0")

		h := a.do("POST", "/v1/acquire", `{"key":"k","owner":"carol"}`).ok(t)
		a.breaks(h.text("token"), "").ok(t)
		if got := v.take(); !slices.Contains(got, "broken k carol release 7") {
			t.Errorf("a break is told as %q", got)
		}
		b.do("POST", "/v1/acquire", `{"key":"k","owner":"dave","ttl":"3s"}`).ok(t)
		time.Sleep(5 * time.Second)
		v.want("acquired k dave", "line k 1 0", "lost k dave", "line k 0 0")
		a.verb("check", other).ok(t)
		v.close()
	})
}

// counting is a store that counts how often all of its lines are looked at.
type counting struct {
	*memlock.Store
	looks atomic.Int64
}

func (c *counting) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	c.looks.Add(1)
	return c.Store.Lines(ctx, prefix)
}

// Viewers of the API and visitors of the console have the store looked at once a second, all
// together, and both learn at once what the Server has done itself.
func TestOneLookIsForTheAPIAndTheConsole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memlock.New()}
		a := (&world{t, store}).server(nil)
		v := a.view("", "")
		v.want()
		live, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "http://localhost/live", nil).WithContext(live))
		}()
		synctest.Wait()
		before := store.looks.Load()
		time.Sleep(time.Minute)
		if n := store.looks.Load() - before; n < 59 || n > 61 {
			t.Errorf("all lines were looked at %d times in a minute", n)
		}
		a.verb("release", a.do("POST", "/v1/acquire", `{"key":"k","owner":"alice"}`).ok(t)).ok(t)
		if page := a.do("GET", "/key?key=k", "").text("text"); !strings.Contains(page, "alice") {
			t.Error("the history of the console does not have the grant")
		}
		if got := v.take(); !slices.Contains(got, "acquired k alice") || !slices.Contains(got, "released k alice") {
			t.Errorf("the events are %q", got)
		}
		stop()
		<-done
		v.close()
	})
}

func TestEventsGoOnAfterTheLastOneSeen(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.server(nil)
		v := a.view("", "")
		v.want()
		h := a.do("POST", "/v1/acquire", `{"key":"k","owner":"alice"}`).ok(t)
		v.want("acquired k alice", "line k 1 0")
		v.close()
		a.verb("release", h).ok(t)
		again := a.view("", v.lastID)
		again.want("released k alice", "line k 0 0")
		again.close()

		// A stranger's ID, and one of a time before: the lines as they are, and no pretence.
		a.do("POST", "/v1/acquire", `{"key":"k","owner":"alice","ttl":"1h"}`).ok(t)
		for _, id := range []string{"ABCDEFGH-3", "nonsense", again.lastID + "0000"} {
			lost := a.view("", id)
			lost.want("reset", "line k 1 0")
			lost.close()
		}
		time.Sleep(2 * time.Minute) // nobody has viewed events
		late := a.view("", again.lastID)
		late.want("reset", "line k 1 0")
		late.close()
	})
}

func TestEventsOfManyLinesAreCutToARing(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.server(nil)
		v := a.view("?key=k", "")
		a.acquire("k")
		v.take()
		v.close()
		c := testclient.New(t, w.store, nil)
		defer c.Close()
		for i := range 6500 {
			steps.Must(t, steps.ErrOf(c.Lock(t.Context(), fmt.Sprint("other-", i))))
		}
		time.Sleep(2 * time.Second)
		again := a.view("?key=k", v.lastID)
		again.want("reset", "line k 1 0")
		again.close()
	})
}

func TestEventsShowWhatTheViewerMaySee(t *testing.T) {
	inWorld(t, func(w *world) {
		tokens, of := tokensFor(t, "ops look ci/", "root all *")
		s := w.server(&httplock.Options{Tokens: tokens})
		s, root := s.as(of["ops"]), s.as(of["root"])
		root.acquire("secret")
		v := s.view("", "")
		v.want()
		root.acquire("secret-2")
		root.do("POST", "/v1/acquire", `{"key":"ci/a","owner":"alice"}`).ok(t)
		v.want("acquired ci/a alice", "line ci/a 1 0")
		v.close()
	})
}

func TestStreamsEndAsTheServerDrains(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.server(nil)
		v := a.view("", "")
		a.Drain()
		<-v.done
		a.do("GET", "/v1/events", "").is(t, 503, "come-again")
		a.do("GET", "/readyz", "").is(t, 503, "come-again")
		a.do("GET", "/healthz", "").ok(t)
		if r := a.do("POST", "/v1/acquire", `{"key":"k"}`).is(t, 503, "come-again"); r.header.Get("Connection") != "close" {
			t.Errorf("the headers are %v", r.header)
		}
		if m := a.do("GET", "/metrics", "").ok(t); !strings.Contains(m.text("text"), "fencelock_http_draining 1") ||
			!strings.Contains(m.text("text"), `fencelock_http_request_duration_seconds_count{path="/v1/acquire",code="503"} 1`) {
			t.Errorf("the metrics are %s", m.text("text"))
		}
	})
}
