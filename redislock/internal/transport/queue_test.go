package transport

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var script = NewScript("return {1}", 64)

// wire is what a queue sends to. A batch is under way until its time is over.
type wire struct {
	took  time.Duration
	mu    sync.Mutex
	sizes []int // of the batches that were sent
}

func (w *wire) send(batch []*Command) {
	w.mu.Lock()
	w.sizes = append(w.sizes, len(batch))
	w.mu.Unlock()
	time.Sleep(w.took) // in a bubble
}

func (w *wire) sent() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.sizes)
}

// idle checks that nothing is left of a queue's work.
func idle(t *testing.T, q *queue) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.began) > 0 || q.pending != nil {
		t.Errorf("at the end %d requests are under way and %d commands pending", len(q.began), len(q.pending))
	}
}

func enqueue(q *queue, n int) (commands []*Command) {
	for range n {
		c := NewCommand(script, []any{"key"})
		q.enqueue(c)
		synctest.Wait()
		commands = append(commands, c)
	}
	return commands
}

// Two requests are under way, and what comes meanwhile goes together.
func TestCommandsGatherWhileRequestsAreUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{took: overdue / 2}
		q := newQueue(w.send)
		enqueue(q, maxActive+maxBatch+1)
		if n := len(w.sent()); n != maxActive {
			t.Fatalf("%d requests are under way, want %d", n, maxActive)
		}
		time.Sleep(overdue)
		synctest.Wait()
		sizes := w.sent()[maxActive:]
		slices.Sort(sizes) // two requests end in the same instant, and the batches go out in either order
		if !slices.Equal(sizes, []int{1, maxBatch}) {
			t.Errorf("the others went in batches of %v, want one of %d and one of 1", sizes, maxBatch)
		}
		time.Sleep(overdue)
		synctest.Wait()
		idle(t, q)
	})
}

// A request that is stuck makes room for another, but not for any number of them.
func TestStuckRequestsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{took: time.Hour}
		q := newQueue(w.send)
		enqueue(q, maxActive+1)
		if n := len(w.sent()); n != maxActive {
			t.Fatalf("%d requests are under way, want %d", n, maxActive)
		}
		time.Sleep(overdue)
		synctest.Wait()
		if n := len(w.sent()); n != maxActive+1 {
			t.Fatalf("%d requests are under way after %v, want %d", n, overdue, maxActive+1)
		}
		for range 2 * maxRequests {
			enqueue(q, 1)
			time.Sleep(overdue)
			synctest.Wait()
		}
		if n := len(w.sent()); n != maxRequests {
			t.Errorf("%d requests are under way though none comes back, want %d", n, maxRequests)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		idle(t, q)
	})
}

// What has not been sent when its caller goes is not sent later.
func TestAbandonedCommandIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{}
		var sent []*Command
		tr.queue = newQueue(func(batch []*Command) { sent = append(sent, awaited(batch)...) })
		first, ok1 := tr.queue.tryBegin()
		second, ok2 := tr.queue.tryBegin()
		if _, ok3 := tr.queue.tryBegin(); !ok1 || !ok2 || ok3 {
			t.Fatalf("want room for %d requests, and no third", maxActive)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone, stays := NewCommand(script, []any{"key"}), NewCommand(script, []any{"key"})
		tr.Start(ctx, gone)
		tr.Start(t.Context(), stays)
		cancel()
		if tr.Wait(ctx, gone).Err == nil {
			t.Error("a command that was not sent has an answer")
		}
		tr.queue.end(first)
		tr.queue.end(second)
		synctest.Wait()
		if len(sent) != 1 || sent[0] != stays {
			t.Errorf("%d commands were sent, want the one whose caller waits", len(sent))
		}
	})
}
