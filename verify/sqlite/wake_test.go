package sqlite_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// farBelow is far below the look after a second that stands behind every wake-up.
const farBelow = 400 * time.Millisecond

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
	b := backend(t, openFile(t, newFile(t)))
	handOvers(t, b, b)
}

func TestWaiterOfAnotherBackendIsWoken(t *testing.T) {
	path := newFile(t)
	handOvers(t, backend(t, openFile(t, path)), backend(t, openFile(t, path)))
}

// TestWaiterIsWokenWithoutNotifier has a database without a file, to which
// nothing can be attached: the database is asked again and again.
func TestWaiterIsWokenWithoutNotifier(t *testing.T) {
	db := openDSN(t, ":memory:")
	db.SetMaxOpenConns(1)
	handOvers(t, backend(t, db), backend(t, db))
}

// TestPurgeGrantsWhoNobodyAwaits has a reader wait behind a writer that dies, and asks
// about it for no longer. A second reader purges the writer, and both hold the lock:
// were the first left waiting, the second would have to wait behind it.
func TestPurgeGrantsWhoNobodyAwaits(t *testing.T) {
	db := openFile(t, newFile(t))
	b := backend(t, db)
	writer := hold(t, b, claim("k"))
	reader := claim("k")
	reader.Weight = 1
	first := wait(t, b, reader)
	if _, err := db.Exec("UPDATE fencelock_claim SET expires = 1 WHERE token = ?", writer.Token); err != nil {
		t.Fatal(err)
	}
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
	path := newFile(t)
	mine, other := backend(t, openFile(t, path)), backend(t, openFile(t, path))
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
	b := backend(t, openFile(t, newFile(t)))
	stop := b.Alarm(func(string, driver.ErrGone) { t.Error("a stopped alarm was called") })
	stop()
	stop()
	holder := hold(t, b, claim("k"))
	if err := b.Break(soon(t), "k", holder.Token, ""); err != nil {
		t.Fatal(err)
	}
	empty(t, b)
}
