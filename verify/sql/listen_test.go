package sql_test

import (
	"context"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
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

// TestListenerKilledByAnAdmin ends the connection that listens. Another one is made.
func TestListenerKilledByAnAdmin(t *testing.T) {
	only(t, postgres, func(t *testing.T, s *store) {
		a, b := s.polling(t), s.backend(t)
		holder, w := hold(t, a, claim("k")), wait(t, b, claim("k"))
		next := steps.Await(t, b, w)
		listens := func() (pid int) {
			until(t, "a session listens", func() bool {
				return s.db.QueryRow(`SELECT pid FROM pg_stat_activity
					WHERE datname = current_database() AND query LIKE 'LISTEN%' AND state = 'idle'`).Scan(&pid) == nil
			})
			return pid
		}
		before := listens()
		s.kill(t, int64(before))
		until(t, "another session listens", func() bool { return listens() != before })
		leave(t, a, holder)
		leave(t, b, <-next)
		empty(t, a)
	})
}

// TestNotifiesOnlyWhenSomebodyWaits listens to what a Backend is told: NOTIFY takes a lock
// on the whole database. Names are lower case where they are not quoted, also that of the channel.
func TestNotifiesOnlyWhenSomebodyWaits(t *testing.T) {
	only(t, postgres, func(t *testing.T, s *store) {
		told := make(chan struct{}, 1000)
		a := s.new(t, s.open(t), &sqllock.Options{CreateTables: true, Prefix: "App_",
			Listen: func(ctx context.Context, channel string, heard func()) error {
				return listenOn(s.dsn)(ctx, channel, func() {
					told <- struct{}{} // the first is that it listens
					heard()
				})
			}})
		defer a.Alarm(func(string, driver.GoneError) {})()
		b := s.new(t, s.open(t), &sqllock.Options{CreateTables: true, Prefix: "App_"})
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
		case <-time.After(time.Minute):
			t.Error("a waiter of another process was not told")
		}
		leave(t, a, granted(t, a, w))
		steps.Same(t, "notifications too many", len(told), 0)
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

// settled is how long those who wait need to have looked at their line: what happens
// after that they must be told.
const settled = 30 * time.Millisecond
