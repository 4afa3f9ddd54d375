package postgres_test

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

func pause(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
}

// handOvers passes a lock to and fro, and wants nobody to wait for the look after a
// second, in the median.
func handOvers(t *testing.T, a, b *sqllock.Backend) {
	t.Helper()
	const rounds = 21
	holder := hold(t, a, claim("k"))
	late := 0
	for range rounds {
		w := wait(t, b, claim("k"))
		got := make(chan time.Time)
		go func() {
			granted(t, b, w)
			got <- time.Now()
		}()
		pause(settled)
		began := time.Now()
		leave(t, a, holder)
		if took := (<-got).Sub(began); took > farBelow {
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
	t.Parallel()
	b := backend(t, openURL(t, newURL(t)))
	handOvers(t, b, b)
}

// TestWaiterIsWokenWithoutListen has nobody to tell it: it asks, again and again.
func TestWaiterIsWokenWithoutListen(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	a, b := backend(t, openURL(t, url)), backend(t, openURL(t, url))
	if a.Info().Push {
		t.Error("a Backend without Listen promises to push")
	}
	handOvers(t, a, b)
}

func TestWaiterOfAnotherBackendIsWoken(t *testing.T) {
	t.Parallel()
	path := newURL(t)
	handOvers(t, listening(t, path), listening(t, path))
}

// TestOneReleaseWakesEveryReader has readers of two processes wait for a writer.
func TestOneReleaseWakesEveryReader(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	a, b := listening(t, url), listening(t, url)
	late := 0
	const rounds = 5
	for range rounds {
		writer := hold(t, a, claim("k"))
		took := make(chan time.Duration)
		var began time.Time
		start, all := make(chan struct{}), make(chan struct{})
		for i := range 6 {
			view := []*sqllock.Backend{a, a, b}[i%3]
			reader := claim("k")
			reader.Weight = 1
			w := wait(t, view, reader)
			go func() {
				w := granted(t, view, w)
				<-start
				took <- time.Since(began)
				<-all // one that left would wake the next
				leave(t, view, w)
				took <- 0
			}()
		}
		pause(settled)
		began = time.Now()
		close(start)
		leave(t, a, writer)
		longest := time.Duration(0)
		for i := range 12 {
			if i == 6 {
				close(all)
			}
			longest = max(longest, <-took)
		}
		if longest > farBelow {
			late++
		}
	}
	if late > rounds/2 {
		t.Errorf("in %d of %d rounds the last of six readers was woken later than %v", late, rounds, farBelow)
	}
	empty(t, a)
}

// TestDeadWaiterIsPurgedByATry has a waiter with a short lease die behind a holder with a
// long one, and in front of nobody who would look.
func TestDeadWaiterIsPurgedByATry(t *testing.T) {
	t.Parallel()
	b := backend(t, openURL(t, newURL(t)))
	holder := hold(t, b, claim("k"))
	wait(t, b, ttl(claim("k"), 200*time.Millisecond))
	pause(300 * time.Millisecond)
	leave(t, b, holder)
	leave(t, b, hold(t, b, noWait(claim("k"))))

	// The same with one that lingers for less than its lease.
	holder = hold(t, b, claim("k"))
	if err := b.Leave(soon(t), holder, driver.Exit{Linger: 200 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	pause(300 * time.Millisecond)
	leave(t, b, hold(t, b, noWait(claim("k"))))
	empty(t, b)
}

// TestPurgeGrantsWhoNobodyAwaits has a reader wait behind a writer that dies, and asks
// about it for no longer. A second reader purges the writer, and both hold the lock:
// were the first left waiting, the second would have to wait behind it.
func TestPurgeGrantsWhoNobodyAwaits(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	b := backend(t, openURL(t, url))
	writer := hold(t, b, claim("k"))
	reader := claim("k")
	reader.Weight = 1
	first := wait(t, b, reader)
	do(t, url, "UPDATE fencelock_claim SET expires = 1 WHERE token = $1", writer.Token)
	do(t, url, "UPDATE fencelock_line SET soonest = 1")
	until(t, "the writer's lease ends", func() bool {
		l, err := b.Line(soon(t), "k")
		if err != nil {
			t.Fatal(err)
		}
		return len(l.Claims) == 1
	})
	other := claim("k")
	other.Weight = 1
	second := hold(t, b, noWait(other))
	leave(t, b, second)
	leave(t, b, hold(t, b, first.Claim))
	empty(t, b)
}

func TestAlarmHearsOfABreakByAnotherProcess(t *testing.T) {
	t.Parallel()
	path := newURL(t)
	mine, other := listening(t, path), listening(t, path)
	heard := make(chan driver.ErrGone, 10)
	stop := mine.Alarm(func(id string, gone driver.ErrGone) { heard <- gone })
	defer stop()
	for _, by := range []*sqllock.Backend{other, mine} {
		holder := hold(t, mine, claim("k"))
		if err := by.Break(soon(t), "k", holder.Token, "out of order"); err != nil {
			t.Fatal(err)
		}
		limit := time.NewTimer(15 * time.Second)
		select {
		case gone := <-heard:
			if !gone.Broken || gone.Reason != "out of order" {
				t.Errorf("the alarm says %+v; want what the operator wrote", gone)
			}
		case <-limit.C:
			t.Fatal("the alarm did not hear of the break")
		}
		limit.Stop()
	}
	// Nothing is heard twice, also when there are other news.
	handOvers(t, mine, other)
	if n := len(heard); n > 0 {
		t.Errorf("the alarm heard %d times more of what it knew", n)
	}
	empty(t, mine)
}

func TestStoppedAlarmHearsNothing(t *testing.T) {
	t.Parallel()
	b := backend(t, openURL(t, newURL(t)))
	stop := b.Alarm(func(string, driver.ErrGone) { t.Error("a stopped alarm was called") })
	stop()
	stop()
	holder := hold(t, b, claim("k"))
	if err := b.Break(soon(t), "k", holder.Token, ""); err != nil {
		t.Fatal(err)
	}
	empty(t, b)
}
