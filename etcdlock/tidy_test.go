package etcdlock_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// TestNothingIsLeft uses everything, closes, and looks at what the server has.
//
//verify:fault etcd | nothing is left
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t))
	a, b := x.backend(), x.backend()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for _, c := range []driver.Claim{steps.Claim("k"), steps.Reader("k"), steps.Permits("s", 1, 2), steps.TTL(steps.Claim("k"), time.Minute)} {
				view := []driver.Backend{a, b}[i%2]
				k, err := view.Enter(steps.Soon(t), c)
				for err == nil && !k.Granted {
					k, err = view.Await(steps.Soon(t), k)
				}
				if err == nil {
					err = view.Leave(steps.Soon(t), k, driver.Exit{})
				}
				steps.OK(t, err)
			}
		})
	}
	group.Wait()
	a.Close()
	b.Close()
	if left := x.leases(); len(left) > 0 {
		t.Errorf("%d leases are left after Close", len(left))
	}
	if left := x.keys(""); len(left) > 0 {
		t.Errorf("keys are left: %v", left)
	}
	if told, err := metrics(x.server); err != nil || told[watchers] != "0" {
		t.Errorf("%s watches are left, %v", told[watchers], err)
	}
}

// TestLeaseInItsLastSecondIsGivenBack: a server says of a lease that ends within a second
// that it has 0 seconds left.
func TestLeaseInItsLastSecondIsGivenBack(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t))
	b := x.backend()
	left := int64(1)
	for asked := steps.Soon(t); left > 0; sleep(10 * time.Millisecond) {
		ids := x.leases()
		if len(ids) == 0 { // at first, and if the last second was missed
			steps.Leave(t, b, steps.Hold(t, b, steps.TTL(steps.Claim("k"), lease)))
			continue
		}
		l, err := x.etcd.TimeToLive(asked, ids[0])
		steps.Must(t, err)
		if l.GrantedTTL > 0 {
			left = l.TTL
		}
	}
	b.Close()
	if n := len(x.leases()); n > 0 {
		t.Errorf("%d leases are left after Close", n)
	}
}

// TestTombstonesExpire: what keeps an id out is gone after two of its leases.
func TestTombstonesExpire(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t))
	b := x.backend()
	for range 5 {
		if err := b.Leave(steps.Soon(t), driver.Ticket{Claim: steps.TTL(steps.Claim("k"), lease)}, driver.Exit{Tombstone: true}); !driver.Gone(err) {
			t.Fatal(err)
		}
	}
	broken := steps.Hold(t, b, steps.TTL(steps.Claim("k"), 5*lease))
	steps.Must(t, b.Break(steps.Soon(t), "k", broken.Token, driver.Break{Reason: "x"}))
	b.Close()
	testserver.Eventually(t, time.Minute, "no key and no lease is left", func() bool { return len(x.keys(""))+len(x.leases()) == 0 })
}

// TestCloseKeepsTheLeaseOfAClaim: a lease that something hangs on is not revoked.
func TestCloseKeepsTheLeaseOfAClaim(t *testing.T) {
	_, a, b := sceneOfTwo(t)
	// Enters are under way while the Backend is closed: none may be granted and then
	// lose its lease to Close.
	var group sync.WaitGroup
	var mu sync.Mutex
	var held []driver.Ticket
	for i := range 20 {
		group.Go(func() {
			k, err := a.Enter(steps.Soon(t), steps.Claim(fmt.Sprint(i)))
			if err == nil {
				mu.Lock()
				held = append(held, k)
				mu.Unlock()
			} else if !errors.Is(err, driver.ErrClosed) {
				t.Error(err)
			}
		})
	}
	first := steps.Hold(t, a, steps.Claim("first"))
	sleep(2 * time.Millisecond)
	a.Close()
	group.Wait()
	for _, k := range append(held, first) {
		steps.Same(t, "a claim that was granted is gone after Close", len(claims(t, b, k.Key)), 1)
	}
	for l, err := range b.Lines(steps.Soon(t), "") {
		steps.Must(t, err)
		steps.OK(t, b.Break(steps.Soon(t), l.Key, l.Claims[0].Token, driver.Break{Reason: "end"}))
	}
}

// TestRefusedTriesAreNotWritten: a try that is refused was never in line, not even for a moment, and tries that
// come at once are given all permits of a semaphore.
func TestRefusedTriesAreNotWritten(t *testing.T) {
	x, a, b := sceneOfTwo(t)
	writer, begin := steps.Hold(t, a, steps.Claim("k")), x.revision()
	for _, c := range []driver.Claim{steps.Claim("k"), steps.Reader("k"), steps.Permits("k", 1, 2)} {
		steps.Refused(t, a, c)
	}
	const size, tries = 3, 24
	var group sync.WaitGroup
	held := make(chan driver.Ticket, tries)
	for i := range tries {
		group.Go(func() {
			k, err := []driver.Backend{a, b}[i%2].Enter(steps.Soon(t), steps.NoWait(steps.Permits("s", 1, size)))
			switch {
			case err == nil && k.Granted:
				held <- k
			case !errors.As(err, new(*driver.BusyError)):
				t.Errorf("a try answered granted %v, error %v", k.Granted, err)
			}
		})
	}
	group.Wait()
	close(held)
	steps.Same(t, "permits were given away", len(held), size)
	if names := x.written(begin); len(names) != size {
		t.Errorf("%q were written; want the %d that were granted", names, size)
	}
	for k := range held {
		steps.Leave(t, a, k)
	}
	steps.Leave(t, a, writer)
}

// TestFormatOfAnotherVersion is refused, not guessed at.
//
//verify:fault The API, on all stores | two versions of the library on one key
func TestFormatOfAnotherVersion(t *testing.T) {
	x, b := sceneOfOne(t)
	for _, value := range []string{`{"v":2,"x":1}`, "something else", ""} {
		name := x.prefix + "k/wAAAA"
		x.put(name, value)
		_, err := b.Enter(steps.Soon(t), steps.NoWait(steps.Claim("k")))
		steps.Permanent(t, fmt.Sprintf("Enter beside a claim %q", value), err)
		_, err = b.Line(steps.Soon(t), "k")
		steps.Permanent(t, fmt.Sprintf("Line with a claim %q", value), err)
		x.remove(name)
	}
}

// TestUnreadableLineIsNotJoined: a claim may be in line before its Backend finds a record that
// it cannot read. Its caller is told that it has not joined, so it leaves again.
func TestUnreadableLineIsNotJoined(t *testing.T) {
	x, b := sceneOfOne(t)
	for name, c := range map[string]driver.Claim{
		"k/w0": steps.Claim("k"), "k/w1": steps.Reader("k"), "k/p0": steps.Permits("k", 1, 2), "k/m": steps.Claim("k"),
	} {
		x.put(x.prefix+name, `{"v":1,"id":"x","capacity":2,"weight":-1,"mark":5}`)
		steps.Permanent(t, "Enter beside "+name, steps.ErrOf(b.Enter(steps.Soon(t), c)))
		if names := x.keys("k/"); len(names) != 1 {
			t.Errorf("after an Enter that was refused for %s the line has %v", name, names)
		}
		x.remove(x.prefix+"k/", clientv3.WithPrefix())
	}
}
