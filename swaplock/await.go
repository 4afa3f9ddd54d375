package swaplock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/line"
)

// maxAwait is the longest that Await waits before it looks.
const maxAwait = time.Second

// Await returns when the claim of t is granted or gone, when a claim of its line may have
// expired, or after a second. A grant that it hears of costs no request; else it costs a Read,
// shared by all who wait for the key in this process.
func (b *Backend) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	if err := b.ended(ctx); err != nil {
		return driver.Ticket{}, err
	}
	o, known := b.claims.enter(driverutil.Ref(t.Key, t.ID))
	b.watch()
	if !known { // it has entered elsewhere, so its news was not heard
		defer b.claims.leave(driverutil.Ref(t.Key, t.ID))
		if got, _, err := b.look(ctx, o, t); got.Granted || err != nil {
			return got, err
		}
	}
	b.claims.sleep(ctx, b.ctx, o)
	if err := b.ended(ctx); err != nil {
		return driver.Ticket{}, err
	}
	if err := b.lost(&t); err != nil {
		b.claims.leave(driverutil.Ref(t.Key, t.ID))
		return driver.Ticket{}, err
	}
	if b.claims.heard(o) {
		t.Granted, t.Ahead, t.Head = true, 0, nil
		return t, nil
	}
	got, _, err := b.look(ctx, o, t)
	return got, err
}

// errOld says that a line was read as it was before a claim entered it.
var errOld = errors.New("an old state of the line was read: connect to the primary, past whatever sends reads to " +
	"replicas")

// look reads where the claim of t stands, and returns the notice that it is under and, last, an error.
func (b *Backend) look(ctx context.Context, o *own, t driver.Ticket) (driver.Ticket, error, error) {
	var got driver.Ticket
	var notice error
	var seen *reading
	err := b.do(t.Key, &job{ctx: ctx, looks: true, id: t.ID, f: func(r *reading, s *line.Step) error {
		c := r.Find(t.ID)
		switch {
		case c != nil:
			seen, got, notice = r, r.Ticket(s, c), r.Notice(s, c)
		case r.beyond(t.Token):
			seen, got = r, t // it waits behind those that were read
		case r.Version != "" && r.Line.Last < t.Token && r.Tombstones[t.ID] == (line.Tombstone{}):
			return errOld
		default:
			return r.Gone(s, t.ID)
		}
		return nil
	}})
	if err != nil {
		if driver.Gone(err) {
			b.claims.leave(driverutil.Ref(t.Key, t.ID))
		}
		return driver.Ticket{}, nil, err
	}
	b.claims.stands(o, &got, &seen.State, seen.quiet())
	return got, notice, nil
}

// Alarm calls f for claims of this Backend that were broken or are under notice, until stop is called. While there is
// an alarm, a store without push is asked once a second for the versions of keys that are held.
func (b *Backend) Alarm(f func(id string, gone driver.GoneError)) (stop func()) {
	b.watch()
	return b.claims.alarms.Subscribe(f)
}

// heard delivers news of key. Where these are not known, one look serves all claims of the key.
func (b *Backend) heard(key string, news []News) {
	if key == "" || len(news) > 0 {
		b.doubt(b.claims.hear(key, news))
		return
	}
	b.start(func() {
		_ = b.do(key, &job{ctx: b.ctx, looks: true, f: func(*reading, *line.Step) error { return nil }})
	})
}

// doubt looks whether granted claims were broken, or have notice, of which somebody would be told.
func (b *Backend) doubt(owned []*own) {
	for _, o := range owned {
		b.start(func() {
			_, notice, err := b.look(b.ctx, o, driver.Ticket{Claim: driver.Claim{Key: o.Key, ID: o.ID}})
			var gone driver.GoneError
			if errors.As(cmp.Or(err, notice), &gone) && gone.Broken {
				b.claims.alarms.Notify(o.ID, gone)
			}
		})
	}
}

// watch has the store tell of changes from now on, unless it does already.
func (b *Backend) watch() {
	b.mu.Lock()
	begun := b.watching
	b.watching = true
	b.mu.Unlock()
	if begun {
		return
	}
	b.start(func() {
		for b.ctx.Err() == nil {
			// What was not heard is found by the look that each Await ends with.
			_ = b.store.Watch(b.ctx, b.claims.waiting, b.heard)
			select {
			case <-time.After(maxAwait / 4):
			case <-b.ctx.Done():
			}
		}
	})
}

// start runs f, unless the Backend is closed. Close waits for f.
func (b *Backend) start(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() == nil {
		b.running.Go(f)
	}
}
