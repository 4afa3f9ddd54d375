package sql_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

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
		began := time.Now()
		leave(t, a, holder)
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

func TestWaiterIsWokenInItsOwnProcess(t *testing.T) {
	polled(t, all, func(t *testing.T, s *store, b *sqllock.Backend) {
		handOvers(t, b, b)
	})
}

func TestWaiterOfAnotherBackendIsWoken(t *testing.T) {
	each(t, all, func(t *testing.T, s *store) { handOvers(t, s.backend(t), s.backend(t)) })
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

// TestOneReleaseWakesEveryReader has readers of two processes wait for a writer. The last of six is
// later than the median of hand-overs: without any wake-up it is granted after 0.98 s on an idle
// machine. With them it was granted after 0.22 s in the median of five rounds, with a load of 23.
func TestOneReleaseWakesEveryReader(t *testing.T) {
	const beforeTheLook = 800 * time.Millisecond
	each(t, all, func(t *testing.T, s *store) {
		a, b := s.backend(t), s.backend(t)
		late := 0
		const rounds, readers = 5, 6
		for range rounds {
			writer := hold(t, a, claim("k"))
			at, all, left := make(chan time.Time), make(chan struct{}), make(chan bool)
			for i := range readers {
				view := []*sqllock.Backend{a, a, b}[i%3]
				w := wait(t, view, reader("k"))
				go func() {
					w := granted(t, view, w)
					at <- time.Now()
					<-all // one that left would wake the next
					leave(t, view, w)
					left <- true
				}()
			}
			pause(settled)
			began := time.Now()
			leave(t, a, writer)
			longest := time.Duration(0)
			for range readers {
				longest = max(longest, (<-at).Sub(began))
			}
			close(all)
			for range readers {
				<-left
			}
			if longest > beforeTheLook {
				late++
			}
		}
		if late > rounds/2 {
			t.Errorf("in %d of %d rounds the last of six readers was woken later than %v", late, rounds, beforeTheLook)
		}
		empty(t, a)
	})
}

// TestDeadWaiterIsPurgedByATry has a waiter with a short lease die behind a holder with a
// long one, and in front of nobody who would look.
func TestDeadWaiterIsPurgedByATry(t *testing.T) {
	polled(t, all, func(t *testing.T, s *store, b *sqllock.Backend) {
		holder := hold(t, b, claim("k"))
		wait(t, b, ttl(claim("k"), 200*time.Millisecond))
		pause(300 * time.Millisecond)
		leave(t, b, holder)
		leave(t, b, hold(t, b, noWait(claim("k"))))

		// The same with one that lingers for less than its lease.
		holder = hold(t, b, claim("k"))
		must(t, b.Leave(soon(t), holder, driver.Exit{Linger: 200 * time.Millisecond}))
		pause(300 * time.Millisecond)
		leave(t, b, hold(t, b, noWait(claim("k"))))
	})
}

// TestLeaveGrantsAllWhoNobodyAwaits has three readers wait behind a writer that leaves, and
// asks about none of them. Were one of them left waiting, a fourth would be refused, though
// nobody but readers is in line.
func TestLeaveGrantsAllWhoNobodyAwaits(t *testing.T) {
	polled(t, all, func(t *testing.T, s *store, b *sqllock.Backend) {
		writer := hold(t, b, claim("k"))
		readers := []driver.Ticket{wait(t, b, reader("k")), wait(t, b, reader("k")), wait(t, b, reader("k"))}
		leave(t, b, writer)
		leave(t, b, append(readers, hold(t, b, noWait(reader("k"))))...)
	})
}

// TestPurgeGrantsWhoNobodyAwaits has a reader wait behind a writer that dies, and asks
// about it for no longer. A second reader purges the writer, and both hold the lock:
// were the first left waiting, the second would have to wait behind it.
func TestPurgeGrantsWhoNobodyAwaits(t *testing.T) {
	polled(t, all, func(t *testing.T, s *store, b *sqllock.Backend) {
		hold(t, b, claim("k"))
		first := wait(t, b, reader("k"))
		s.do(t, "UPDATE fencelock_swap SET expires = 1")
		until(t, "the writer's lease ends", func() bool {
			l, err := b.Line(soon(t), "k")
			must(t, err)
			return len(l.Claims) == 1
		})
		leave(t, b, hold(t, b, noWait(reader("k"))), hold(t, b, first.Claim))
	})
}

func TestAlarmHearsOfABreakByAnotherProcess(t *testing.T) {
	each(t, all, func(t *testing.T, s *store) {
		mine, other := s.backend(t), s.backend(t)
		heard := make(chan driver.GoneError, 10)
		defer mine.Alarm(func(_ string, gone driver.GoneError) { heard <- gone })()
		for _, by := range []*sqllock.Backend{other, mine} {
			holder := hold(t, mine, claim("k"))
			must(t, by.Break(soon(t), "k", holder.Token, "out of order", 0))
			select {
			case gone := <-heard:
				if !gone.Broken || gone.Reason != "out of order" {
					t.Errorf("the alarm says %+v; want what the operator wrote", gone)
				}
			case <-time.After(15 * time.Second):
				t.Fatal("the alarm did not hear of the break")
			}
		}
		// Nothing is heard twice, also when there are other news.
		handOvers(t, mine, other)
		if n := len(heard); n > 0 {
			t.Errorf("the alarm heard %d times more of what it knew", n)
		}
	})
}

func TestStoppedAlarmHearsNothing(t *testing.T) {
	polled(t, all, func(t *testing.T, s *store, b *sqllock.Backend) {
		stop := b.Alarm(func(string, driver.GoneError) { t.Error("a stopped alarm was called") })
		stop()
		stop()
		holder := hold(t, b, claim("k"))
		must(t, b.Break(soon(t), "k", holder.Token, "", 0))
	})
}
