package locker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/locker"
	"github.com/fencelock/fencelock/memlock"
)

func TestOneHoldsOverClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlock.New()
		inside, n := 0, 0
		var wg sync.WaitGroup
		for range 3 {
			c := testclient.New(t, s, nil)
			defer c.Close()
			var l sync.Locker = locker.New(c, "a")
			for range 3 {
				wg.Go(func() {
					for range 10 {
						l.Lock()
						inside++
						if inside != 1 {
							t.Errorf("%d inside", inside)
						}
						time.Sleep(time.Minute) // longer than a lease
						inside--
						n++
						l.Unlock()
					}
				})
			}
		}
		wg.Wait()
		if n != 90 {
			t.Errorf("%d of 90", n)
		}
	})
}

// A holder that lost the lock must not unlock the next one's.
func TestLateUnlockUnlocksNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testclient.New(t, memlock.New(), nil)
		defer c.Close()
		l := locker.New(c, "a")
		l.Lock()
		if err := c.Break(t.Context(), "a", l.Lease().Token(), "it hangs"); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(l.Err(), fencelock.ErrLost) {
			t.Errorf("the loss is not to be seen: %v", l.Err())
		}
		second := make(chan struct{})
		go func() { l.Lock(); close(second) }()
		synctest.Wait()
		select {
		case <-second:
			t.Error("another goroutine has the Locker before Unlock")
		default:
		}
		l.Unlock()
		<-second
		if l.Err() != nil {
			t.Errorf("the second holder lost it: %v", l.Err())
		}
		if _, err := c.TryLock(t.Context(), "a"); !errors.Is(err, fencelock.ErrNotAcquired) {
			t.Errorf("the second holder holds nothing: %v", err)
		}
		l.Unlock()
		if err := l.Err(); err == nil || l.Lease() != nil {
			t.Error("it says that it is locked")
		}
	})
}

func TestMistakesPanic(t *testing.T) {
	c := testclient.New(t, memlock.New(), nil)
	panics := func(what string, want error, f func()) {
		t.Helper()
		defer func() {
			err, _ := recover().(error)
			if err == nil || want != nil && !errors.Is(err, want) {
				t.Errorf("%s: %v", what, err)
			}
		}()
		f()
	}
	l := locker.New(c, "a")
	panics("unlock of what is not locked", nil, l.Unlock)
	panics("no key", fencelock.ErrInvalid, locker.New(c, "").Lock)
	if p, err := c.Semaphore("s", 2).Acquire(context.Background(), 1); err != nil {
		t.Fatal(err)
	} else {
		panics("a semaphore's key", fencelock.ErrKind, locker.New(c, "s").Lock)
		if err := p.Release(context.Background()); err != nil {
			t.Error(err)
		}
	}
	c.Close()
	panics("closed", fencelock.ErrClosed, l.Lock)
	panics("closed, again", fencelock.ErrClosed, l.Lock) // the first panic left nothing locked
}

func Example() {
	client, _ := fencelock.New(memlock.New(), nil)
	defer client.Close()
	l := locker.New(client, "orders/42")

	l.Lock()
	defer l.Unlock()
	fmt.Println(l.Err(), l.Lease().Token() > 0)
	// Output: <nil> true
}
