package redislock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/redis/go-redis/v9"
)

// testScript makes a script for one lock and more.
func testScript(text string) *script {
	return &script{text: text, sha: redis.NewScript(text).Hash(), maxLocks: 64}
}

var one = testScript("return {1}")

// wire is what a queue sends to. A batch is under way until its time is over.
type wire struct {
	took  time.Duration
	mu    sync.Mutex
	sizes []int // of the batches that were sent
}

func (w *wire) send(batch []*request) {
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
	if q.direct > 0 || q.batches > 0 || q.overdue > 0 || len(q.pending) > 0 {
		t.Errorf("at the end %d requests are under way, %d batches, %d overdue, %d requests pending",
			q.direct, q.batches, q.overdue, len(q.pending))
	}
}

func enqueue(q *queue, n int) {
	for range n {
		q.add(&request{script: one, key: "key"})
		synctest.Wait()
	}
}

// As many requests as may be are under way, and what comes meanwhile goes together.
func TestRequestsGatherWhileOthersAreUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{took: overdue / 2}
		q := &queue{send: w.send}
		enqueue(q, maxBatches+maxBatch+1)
		if n := len(w.sent()); n != maxBatches {
			t.Fatalf("%d batches are under way, want %d", n, maxBatches)
		}
		time.Sleep(overdue)
		synctest.Wait()
		sizes := w.sent()[maxBatches:]
		slices.Sort(sizes) // batches end in the same instant, and the next ones go out in any order
		if !slices.Equal(sizes, []int{1, maxBatch}) {
			t.Errorf("the others went in batches of %v, want one of %d and one of 1", sizes, maxBatch)
		}
		time.Sleep(overdue)
		synctest.Wait()
		idle(t, q)
	})
}

// A batch that is stuck makes room for another, but not for any number of them.
func TestStuckBatchesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{took: time.Hour}
		q := &queue{send: w.send}
		enqueue(q, maxBatches+1)
		if n := len(w.sent()); n != maxBatches {
			t.Fatalf("%d batches are under way, want %d", n, maxBatches)
		}
		time.Sleep(overdue)
		synctest.Wait()
		if n := len(w.sent()); n != maxBatches+1 {
			t.Fatalf("%d batches are under way after %v, want %d", n, overdue, maxBatches+1)
		}
		for range 2 * (maxBatches + maxOverdue) {
			enqueue(q, 1)
			time.Sleep(overdue)
			synctest.Wait()
		}
		if n := len(w.sent()); n != maxBatches+maxOverdue {
			t.Errorf("%d batches are under way though none comes back, want %d", n, maxBatches+maxOverdue)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		idle(t, q)
	})
}

// What has not been sent when its caller goes is not sent later.
func TestAbandonedRequestIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &transport{queues: map[redis.UniversalClient]*queue{}}
		q := tr.queueOf(tr.rdb)
		var sent []*request
		q.send = func(batch []*request) {
			for _, c := range awaited(tr.join(batch)) {
				sent = append(sent, c.requests...)
			}
		}
		for range maxDirect {
			if !q.begin() {
				t.Fatalf("want room for %d requests", maxDirect)
			}
		}
		if q.begin() {
			t.Fatalf("want room for no more than %d requests", maxDirect)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone, stays := &request{script: one, key: "key"}, &request{script: one, key: "key"}
		tr.start(ctx, gone)
		tr.start(t.Context(), stays)
		cancel()
		if tr.wait(ctx, gone).err == nil {
			t.Error("a request that was not sent has an answer")
		}
		for range maxDirect {
			q.end()
		}
		synctest.Wait()
		if len(sent) != 1 || sent[0] != stays {
			t.Errorf("%d requests were sent, want the one whose caller waits", len(sent))
		}
	})
}

// A caller has to know whether an earlier copy of its request may still be applied, be it sent from its own
// goroutine, alone, or in a pipeline.
func TestRepeatsAreCounted(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s)
	c := p.client(func(o *redis.Options) { o.ReadTimeout = time.Hour })
	open := func() *transport {
		tr := newTransport(c, &Options{})
		tr.queueOf(c).near = c // what is late is not sent again
		return tr
	}
	other := testScript("return {2}")
	for _, script := range []*script{one, other} {
		must(t, c.ScriptLoad(t.Context(), script.text.(string)).Err())
	}
	for _, way := range []string{"direct", "alone", "pipeline"} {
		for action, want := range map[faultproxy.Action]bool{
			faultproxy.Pass: false, faultproxy.DropRequest: true, faultproxy.DropAnswer: true, faultproxy.LateRequest: true,
		} {
			t.Run(fmt.Sprintf("%s, fate %d", way, action), func(t *testing.T) {
				tr := open()
				must(t, tr.do(t.Context(), &request{script: one, key: "a"}).err) // asks the server for its role
				sent := 0
				p.Handle(func(r *faultproxy.Request) faultproxy.Action {
					if r.Args()[0] != "evalsha" {
						return faultproxy.Pass
					}
					if sent++; sent > 1 {
						return faultproxy.Pass
					}
					return action
				})
				rs := []*request{{script: one, key: "a"}, {script: other, key: "b"}}
				switch way {
				case "direct":
					rs = rs[:1]
					tr.queueOf(c).fast.Store(true)
					rs[0] = tr.do(t.Context(), rs[0])
				case "alone":
					rs = rs[:1]
					fallthrough
				default:
					for _, r := range rs {
						r.ctx, r.done = t.Context(), make(chan struct{})
					}
					tr.send(rs)
				}
				for i, r := range rs {
					if r.err != nil || r.repeated != want {
						t.Errorf("request %d: answer %v, error %v, repeated %v; want %v", i, r.answer, r.err, r.repeated, want)
					}
				}
			})
		}
	}
	p.Handle(nil)
	r := &request{script: testScript("return {3}"), key: "a"}
	if open().do(t.Context(), r); r.err != nil || r.repeated {
		t.Errorf("a script that the server does not know: error %v, repeated %v; want an answer, and not repeated", r.err, r.repeated)
	}
}
