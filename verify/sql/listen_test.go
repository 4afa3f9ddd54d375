package sql_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

type listen = func(ctx context.Context, channel string, heard func()) error

// listenAfter hears of nothing once connected is closed, and is not in effect before.
func listenAfter(connected <-chan struct{}) listen {
	return func(ctx context.Context, _ string, heard func()) error {
		select {
		case <-connected:
			heard()
		case <-ctx.Done():
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

// awaitBriefly waits for 400 ms for a claim that is not granted then.
func awaitBriefly(t *testing.T, b driver.Backend, w driver.Ticket) {
	t.Helper()
	ctx, cancel := context.WithTimeout(soon(t), 400*time.Millisecond)
	defer cancel()
	var err error
	for err == nil && !w.Granted { // it may look at the line, and return
		w, err = b.Await(ctx, w)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Await of a claim that waits answered %+v, %v", w, err)
	}
}

// TestListenerKilledByAnAdmin ends the connection that listens. Another one is made, and
// nobody who waits meanwhile waits long.
func TestListenerKilledByAnAdmin(t *testing.T) {
	only(t, postgres, func(t *testing.T, s *store) {
		a, b := s.backend(t), s.backend(t)
		handOvers(t, a, b)
		s.do(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE 'LISTEN%'`)
		handOvers(t, a, b)
	})
}

// TestListenThatFails has Listen functions that get no connection, lose it, or hang: those
// who wait ask then, as without one.
func TestListenThatFails(t *testing.T) {
	only(t, postgres, func(t *testing.T, s *store) {
		for name, listen := range map[string]listen{
			"AtOnce": func(context.Context, string, func()) error { return errors.New("no") },
			"Later": func(_ context.Context, _ string, heard func()) error {
				heard()
				return errors.New("no")
			},
			"Hangs": listenAfter(nil),
		} {
			t.Run(name, func(t *testing.T) {
				o := &sqllock.Options{CreateTables: true, Listen: listen}
				handOvers(t, s.new(t, s.open(t), o), s.new(t, s.open(t), o))
			})
		}
	})
}

// TestNotifiesOnlyWhenSomebodyWaits listens to what a Backend is told: NOTIFY takes a lock
// on the whole database.
func TestNotifiesOnlyWhenSomebodyWaits(t *testing.T) {
	only(t, postgres, func(t *testing.T, s *store) {
		told := make(chan struct{}, 1000)
		a := s.new(t, s.open(t), &sqllock.Options{CreateTables: true,
			Listen: func(ctx context.Context, channel string, heard func()) error {
				return listenOn(s.dsn)(ctx, channel, func() {
					told <- struct{}{} // the first is that it listens
					heard()
				})
			}})
		defer a.Alarm(func(string, driver.GoneError) {})()
		b := s.polling(t)
		use(t, a, "k")
		<-told
		for range 20 {
			use(t, a, "k")
			use(t, b, "k")
		}
		// Among waiters of one process nobody needs to be told, either.
		holder, w := hold(t, a, claim("k")), wait(t, a, claim("k"))
		leave(t, a, holder)
		leave(t, a, granted(t, a, w))
		holder, w = hold(t, b, claim("k")), wait(t, a, claim("k"))
		leave(t, b, holder)
		select {
		case <-told:
		case <-time.After(15 * time.Second):
			t.Error("a waiter of another process was not told")
		}
		leave(t, a, granted(t, a, w))
		if n := len(told); n > 0 {
			t.Errorf("%d notifications too many", n)
		}
		empty(t, b)
	})
}

// pqListen is Options.Listen with lib/pq. Its Listener connects again by itself, without end
// and whatever ctx says, so it is closed as soon as it is cut off.
func pqListen(url string) listen {
	return func(ctx context.Context, channel string, heard func()) error {
		lost := make(chan error, 1)
		l := pq.NewListener(url, time.Second, time.Minute, func(e pq.ListenerEventType, err error) {
			if e == pq.ListenerEventDisconnected || e == pq.ListenerEventConnectionAttemptFailed {
				select {
				case lost <- err:
				default:
				}
			}
		})
		defer l.Close()
		stop := context.AfterFunc(ctx, func() { l.Close() }) // Listen waits for a connection
		defer stop()
		if err := l.Listen(channel); err != nil {
			return err
		}
		for {
			heard()
			select {
			case <-l.Notify:
			case err := <-lost:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// farBelow is far below the look after a second that stands behind every wake-up.
const farBelow = 400 * time.Millisecond

// settled is how long those who wait need to have looked at their line: what happens
// after that they must be told.
const settled = 30 * time.Millisecond

// handOvers passes a lock to and fro, and wants nobody to wait for the look after a
// second, in the median.
func handOvers(t *testing.T, a, b *sqllock.Backend) {
	t.Helper()
	const rounds = 21
	holder := hold(t, a, claim("k"))
	late := 0
	for range rounds {
		w := wait(t, b, claim("k"))
		at := behind(func() time.Time {
			granted(t, b, w)
			return time.Now()
		})
		pause(settled)
		leave(t, a, holder)
		began := time.Now() // how long the Leave takes is the machine's
		if took := (<-at).Sub(began); took > farBelow {
			late++
		}
		holder = w
		a, b = b, a
	}
	if late > rounds/2 {
		t.Errorf("%d of %d hand-overs took longer than %v", late, rounds, farBelow)
	}
	leave(t, a, holder)
	empty(t, a)
}

// TestWaiterIsWokenWithoutListen has nobody to tell it: it asks, again and again. So it is with
// a database of SQLite without a file, to which nothing can be attached.
func TestWaiterIsWokenWithoutListen(t *testing.T) {
	each(t, []kind{postgres, sqlite.with("Memory", "%.0s:memory:")}, func(t *testing.T, s *store) {
		db := s.one(t)
		a, b := s.backendOn(t, db), s.backendOn(t, db)
		if s.on != nil {
			b = s.polling(t)
		}
		handOvers(t, a, b)
	})
}

func TestStoppedAlarmHearsNothing(t *testing.T) {
	polled(t, []kind{sqlite}, func(t *testing.T, s *store, b *sqllock.Backend) {
		stop := b.Alarm(func(string, driver.GoneError) { t.Error("a stopped alarm was called") })
		stop()
		stop()
		holder := hold(t, b, claim("k"))
		must(t, b.Break(soon(t), "k", holder.Token, driver.Break{}))
	})
}
