package bench

import (
	"context"
	"errors"
	"sync"

	"github.com/fencelock/fencelock"
)

// atOnce is how many grants a claim of ours asks for at once at most.
const atOnce = 4 * fencelock.DefaultHandOff

// queues is the limit of handing a lock from goroutine to goroutine in the order in which
// they came: a mutex, a queue, and a channel for each who waits, which is used again. There
// is no lease, no renewal and nothing that tells who waits. A sync.Mutex is quicker, and
// not in order.
//
// With ask it asks the store as seldom as one may that promises other processes their
// turn after twice atOnce grants: a script for each so many, ahead of time, so that it is
// waited for only where the grants are quicker than the script.
type queues struct {
	all   sync.Map // key -> *queue
	ask   func(key string) (token int64, err error)
	close func() error
}

// queue is the one of a key.
type queue struct {
	mu          sync.Mutex
	held        bool
	first, last *queued

	// What follows belongs to whoever holds the lock.
	left   int // grants before the store has to have answered
	token  int64
	answer chan answer // of the store, if it is asked
}

type answer struct {
	token int64
	err   error
}

// queued is a goroutine that waits.
type queued struct {
	turn chan struct{}
	next *queued
}

var waiting = sync.Pool{New: func() any { return &queued{turn: make(chan struct{}, 1)} }}

func openQueue(Env) (Locker, error) {
	return &queues{close: func() error { return nil }}, nil
}

// openQueueAsking opens the one that asks Redis.
func openQueueAsking(e Env) (Locker, error) {
	rdb := dialGoRedis(e)
	bare := newBareScripts(e, rdb, rdb.Close)
	return &queues{close: rdb.Close, ask: func(key string) (int64, error) {
		return bareToken(bareAgain.Run(context.Background(), rdb, bareKeys(key), bare.enter...))
	}}, nil
}

func (l *queues) Do(ctx context.Context, key string, inside func(int64)) error {
	found, ok := l.all.Load(key)
	if !ok {
		found, _ = l.all.LoadOrStore(key, &queue{})
	}
	q := found.(*queue)
	if err := q.enter(ctx); err != nil {
		return err
	}
	token, err := l.draw(q, key)
	if err == nil {
		inside(token)
	}
	q.leave()
	return err
}

func (q *queue) enter(ctx context.Context) error {
	q.mu.Lock()
	if !q.held {
		q.held = true
		q.mu.Unlock()
		return nil
	}
	w := waiting.Get().(*queued)
	w.next = nil
	if q.first == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
	q.mu.Unlock()
	select {
	case <-w.turn:
		waiting.Put(w)
		return nil
	case <-ctx.Done():
	}
	if !q.remove(w) { // its turn has come meanwhile
		<-w.turn
		q.leave()
	}
	return ctx.Err()
}

// remove takes w out of the line; false if it is no longer there.
func (q *queue) remove(w *queued) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	var before *queued
	for x := q.first; x != nil; before, x = x, x.next {
		if x != w {
			continue
		}
		if before == nil {
			q.first = x.next
		} else {
			before.next = x.next
		}
		if q.last == w {
			q.last = before
		}
		return true
	}
	return false
}

// wanted reports whether somebody waits.
func (q *queue) wanted() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.first != nil
}

func (q *queue) leave() {
	q.mu.Lock()
	w := q.first
	if w == nil {
		q.held = false
	} else {
		q.first = w.next
	}
	q.mu.Unlock()
	if w != nil {
		w.turn <- struct{}{}
	}
}

// draw returns the token of a grant, and asks the store when it has to.
func (l *queues) draw(q *queue, key string) (int64, error) {
	if l.ask != nil && q.left == 0 {
		if q.answer == nil {
			q.askAhead(l, key)
		}
		a := <-q.answer
		q.answer = nil
		if a.err != nil {
			return 0, a.err
		}
		q.token, q.left = a.token*atOnce, atOnce
		q.askAhead(l, key)
	}
	q.left--
	q.token++
	return q.token, nil
}

func (q *queue) askAhead(l *queues, key string) {
	there := make(chan answer, 1)
	q.answer = there
	go func() {
		token, err := l.ask(key)
		there <- answer{token, err}
	}()
}

func (l *queues) Hold(context.Context, string) (Held, error) {
	return nil, errors.New("a queue in memory holds nothing")
}

func (l *queues) Close() error { return l.close() }
