package swapsql

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/swaplock"
)

// On PostgreSQL one statement takes many free locks, and one frees many that nobody waits for. Each locks the rows that
// nobody has locked, so it waits for nobody, and returns what it has done; the rest goes by statements of their own.
const (
	// Each row is looked up by its key: the planner would read the whole table for a condition that it thinks is rare.
	// Rows that are not there are made in the order of their keys: two batches that make the same ones wait for each
	// other then, and never in a circle.
	takeManySQL = `WITH v AS MATERIALIZED (SELECT decode(a.k, 'hex') AS lock_key, a.*, n.now
FROM (SELECT {now} AS now) n, json_to_recordset(?::json) AS a (k text, i text, n int, span bigint, lease bigint,
	tail text, f int, capacity bigint, unseen boolean)),
taken AS (UPDATE fencelock_swap f SET version = b.now, last = b.now + b.span - 1, holder = decode(b.i, 'escape'),
	expires = b.now + b.lease, came = b.now, open_until = (b.now + b.lease) * b.f, capacity = b.capacity,
	arrivals = '{"token":' || b.now || ',"at":' || b.now || b.tail
FROM (SELECT v.* FROM v, LATERAL (SELECT 1 FROM fencelock_swap f WHERE f.lock_key = v.lock_key AND line = ''
	AND arrivals = '' AND mark = '' AND version < v.now AND last < v.now FOR UPDATE SKIP LOCKED) l) b
WHERE f.lock_key = b.lock_key RETURNING b.n, b.now),
made AS (INSERT INTO fencelock_swap (lock_key, version, last, mark, marked_by, holder, expires, renewals, line,
	arrivals, came, open_until, capacity, news)
SELECT lock_key, now, now + span - 1, '', '', decode(i, 'escape'), now + lease, 0, '',
	'{"token":' || now || ',"at":' || now || tail, now, (now + lease) * f, capacity, ''
FROM v WHERE unseen ORDER BY lock_key ON CONFLICT (lock_key) DO NOTHING RETURNING lock_key)
SELECT n, now FROM taken UNION ALL SELECT n, now FROM made JOIN v ON v.lock_key = made.lock_key`
	freeManySQL = `WITH b AS (SELECT l.lock_key, v.* FROM json_to_recordset(?::json)
	AS v (k text, n int, number bigint, taken int, last bigint, before bigint),
	LATERAL (SELECT lock_key FROM fencelock_swap f WHERE lock_key = decode(v.k, 'hex') AND f.version = v.number
		AND f.last = v.last FOR UPDATE SKIP LOCKED) l, set_config('synchronous_commit', 'off', true) lazily)
UPDATE fencelock_swap f SET expires = 0, holder = '', version = b.number + 1, line = '',
	arrivals = substr(f.arrivals, b.taken + 1), open_until = 0, capacity = 0
FROM b WHERE f.lock_key = b.lock_key AND f.version = b.number AND {now} < b.before RETURNING b.n`
)

const (
	// manyUnder is how many statements of a process are under way when it begins to gather calls for batches.
	manyUnder = 4
	// batchSenders is how many batches of a batcher are under way at most, each of so many calls.
	batchSenders, batchCalls = 2, 128
)

// batcher sends calls together that come while others are under way. A lonely call pays nothing.
type batcher struct {
	s          *Store
	what, text string
	columns    int  // of the rows that text returns: the number of a call, and when it was done
	keeps      bool // as in Statement

	mu      sync.Mutex
	waiting []*batched
	senders int
}

// batched is one call.
type batched struct {
	batchArg
	ctx  context.Context // of the caller
	over chan struct{}   // closed when the batch is over, and all below is set

	done   bool
	now    int64 // when it was done, of a claim that has taken a lock
	resent bool  // as in Statement
	err    error // of the batch
}

// batchArg is the row of a call.
type batchArg struct {
	Key      string `json:"k"`           // in hex
	ID       string `json:"i,omitempty"` // letters and digits
	N        int    `json:"n"`
	Span     int64  `json:"span,omitempty"`
	Lease    int64  `json:"lease,omitempty"`
	Tail     string `json:"tail,omitempty"`
	Full     int64  `json:"f"`
	Capacity int64  `json:"capacity,omitempty"`
	Unseen   bool   `json:"unseen,omitempty"`
	Number   int64  `json:"number,omitempty"`
	Taken    int64  `json:"taken"`
	Last     int64  `json:"last,omitempty"`
	Before   int64  `json:"before,omitempty"`
}

// run has a call done in a batch, if many are under way; else it returns nil. What the batch leaves out must be sent
// alone: also if it was refused, which may be due to another call.
func (b *batcher) run(ctx context.Context, arg batchArg) (*batched, error) {
	c := &batched{batchArg: arg, ctx: ctx, over: make(chan struct{})}
	b.mu.Lock()
	if b.senders == 0 && b.s.under.Load() < manyUnder {
		b.mu.Unlock()
		return nil, nil
	}
	b.waiting = append(b.waiting, c)
	if b.senders == 0 || b.senders < batchSenders && len(b.waiting) >= batchCalls/2 { // one has larger batches
		b.senders++
		go b.sendAll()
	}
	b.mu.Unlock()
	select {
	case <-c.over:
		if errors.Is(c.err, driver.ErrRefused) || errors.Is(c.err, driver.ErrPermanent) {
			return c, nil
		}
		return c, c.err
	case <-ctx.Done():
		return nil, ctx.Err() // the batch goes on without it
	}
}

// sendAll sends batches until nobody waits.
func (b *batcher) sendAll() {
	for calls := b.next(); calls != nil; calls = b.next() {
		b.send(calls)
		for _, c := range calls {
			close(c.over)
		}
	}
}

// next takes the calls of the next batch, one of each key, without those whose callers have gone. It ends a sender by
// returning nil.
func (b *batcher) next() (calls []*batched) {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := map[string]bool{}
	var later []*batched
	for _, c := range b.waiting {
		switch {
		case keys[c.Key] || len(calls) == batchCalls:
			later = append(later, c)
		case c.ctx.Err() == nil:
			keys[c.Key] = true
			calls = append(calls, c)
		}
	}
	if b.waiting = later; calls == nil {
		b.senders--
	}
	return calls
}

// send sends a batch, which ends when its last caller has gone.
func (b *batcher) send(calls []*batched) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var left atomic.Int64
	left.Store(int64(len(calls)))
	args := make([]*batchArg, len(calls))
	for i, c := range calls {
		c.N = i
		args[i] = &c.batchArg
		defer context.AfterFunc(c.ctx, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		})()
	}
	text, err := json.Marshal(args)
	q := b.s.statement(b.what, "", b.text, string(text))
	q.Keeps, q.Writes = b.keeps, true
	q.Begin = func() {
		for _, c := range calls {
			c.done = false
		}
	}
	var n, now int64
	to := []any{&n, &now}[:b.columns]
	q.Row = func(scan func(to ...any) error) error {
		err := scan(to...)
		if err == nil && n < int64(len(calls)) {
			calls[n].done, calls[n].now = true, now
		}
		return err
	}
	if err == nil {
		_, err = b.s.conns.Run(ctx, q)
	}
	for _, c := range calls {
		c.resent, c.err = q.Resent, err
	}
}

// takeInBatch takes the lock of key for the claim with id in a batch, if many calls are under way and the lock is free.
func (s *Store) takeInBatch(ctx context.Context, key, id string, arg batchArg) (p *swaplock.Place, sent bool,
	err error) {
	if s.takes == nil {
		return nil, false, nil
	}
	arg.Key, arg.ID = hex.EncodeToString([]byte(key)), id
	c, err := s.takes.run(ctx, arg)
	if err == nil && c != nil && c.done {
		p = s.taken(c.now, len(arg.Tail), 0)
	}
	return p, c != nil, err
}

// freeInBatch has c, which leavesFree, done in a batch, if many calls are under way.
func (s *Store) freeInBatch(ctx context.Context, key string, number, taken int64, c *swaplock.Change) (done bool,
	err error) {
	if s.frees == nil {
		return false, nil
	}
	got, err := s.frees.run(ctx, batchArg{
		Key: hex.EncodeToString([]byte(key)), Number: number, Taken: taken, Last: c.Last, Before: c.Before.UnixMicro(),
	})
	if got == nil || err != nil {
		return false, err
	}
	if !got.done && got.resent {
		err = errResent(key)
	}
	return got.done, err
}
