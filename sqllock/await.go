package sqllock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// maxAwait is the longest that Await waits before its caller may ask again.
const maxAwait = time.Second

// queue is a line as seen by those who wait in it, in order of arrival.
type queue struct {
	now   instant
	rows  []queued
	first *driver.BusyError // the first live claim; its Ahead is not set
	mixed bool
	// stale says that only a purge can tell who is granted: a claim has expired and
	// nobody has removed it yet, or it is on a clock that is not ours, or somebody
	// fits who was not granted, because rows were deleted by hand.
	stale bool
}

// queued is one claim in a queue.
type queued struct {
	id        string
	granted   bool
	lingering bool
	left      time.Duration
}

// Await returns when the claim of t is granted or gone, or after about a second, and not
// before its line has been read, which takes longer if the database does.
// It holds no connection while it waits. All calls of one Backend share one reading
// of each line, so a thousand waiters cost hardly more than one; a grant costs
// nothing in the process of the claim that left, and one statement in others.
func (b *Backend) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	if !b.open.Load() || b.ctx.Err() != nil {
		none := func(context.Context) (effects, error) { return effects{}, nil }
		if err := b.call(ctx, none); err != nil {
			return driver.Ticket{}, err
		}
	}
	if err := ctx.Err(); err != nil {
		return driver.Ticket{}, err
	}
	w := &waiter{t: t, verdict: make(chan verdict, 1)}
	// From here on a grant is not missed: the line is read after this, or pushed.
	b.hub.join(w)
	defer b.hub.quit(w)
	timer := time.NewTimer(maxAwait)
	defer timer.Stop()
	for {
		select {
		case v := <-w.verdict:
			return v.t, v.err
		case <-timer.C: // once
			if v, ok := b.hub.standing(w); ok {
				return v.t, v.err
			}
		case <-ctx.Done():
			return driver.Ticket{}, ctx.Err()
		case <-b.ctx.Done():
			return driver.Ticket{}, driver.ErrClosed
		}
	}
}

// waiter is one call of Await.
type waiter struct {
	t       driver.Ticket
	verdict chan verdict // takes one, and then the waiter is out of the hub
	read    bool         // the claim was seen in its line since; guarded by the hub
	late    bool         // and it is to be told so: its second was over before
}

// verdict is what Await returns.
type verdict struct {
	t   driver.Ticket
	err error
}

// granted is the verdict for a claim that is granted.
func (w *waiter) granted(g grant) verdict {
	t := w.t
	t.Granted, t.Ahead, t.Head = true, 0, nil
	t.Mark, t.Left, t.Mixed = g.mark, g.left, g.mixed
	return verdict{t: t}
}

// judge looks for the waiters of ws in the line. It returns those whose claim is
// granted, with no mark yet, and those whose claim is not there; the others learn
// how many are ahead. soonest is when the first of those ahead of anybody may have
// expired.
func (q *queue) judge(ws []*waiter) (granted, missing []*waiter, soonest time.Duration) {
	waiting := make(map[string][]*waiter, len(ws))
	for _, w := range ws {
		waiting[w.t.ID] = append(waiting[w.t.ID], w)
	}
	soonest = maxAwait
	ahead, least := 0, maxAwait
	for i := range q.rows {
		r := &q.rows[i]
		if mine := waiting[r.id]; mine != nil && !r.lingering {
			delete(waiting, r.id)
			for _, w := range mine {
				if r.granted {
					granted = append(granted, w)
					continue
				}
				w.read = true
				w.t.Granted, w.t.Ahead, w.t.Left, w.t.Mixed, w.t.Head = false, ahead, r.left, q.mixed, nil
				if q.first != nil {
					head := *q.first
					head.Ahead = ahead
					w.t.Head = &head
				}
				soonest = min(soonest, least)
			}
		}
		ahead++
		least = min(least, r.left)
	}
	for _, mine := range waiting {
		missing = append(missing, mine...)
	}
	return granted, missing, soonest
}
