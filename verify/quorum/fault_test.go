package quorum_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
)

const lease = 1500 * time.Millisecond

// trouble is what happens to a server, and how it gets over it.
var troubles = []struct {
	name    string
	begin   func(s *testserver.Server) error
	end     func(s *testserver.Server) error
	empties bool // the server has lost its data
}{
	{"Killed", (*testserver.Server).Kill, func(s *testserver.Server) error { return s.Restart() }, true},
	{"Paused", (*testserver.Server).Pause, (*testserver.Server).Continue, false},
	{"Wiped", func(s *testserver.Server) error { _, err := s.Ask("FLUSHALL"); return err }, nil, true},
	{"Restarted", func(s *testserver.Server) error { return s.Restart() }, nil, true},
	{"Slowed", func(s *testserver.Server) error { _, err := s.Ask("CLIENT", "PAUSE", "700", "ALL"); return err }, nil, false},
}

// While two of five are in trouble a held lock goes on, and others are taken and released. After
// the trouble and its quarantines the held lock stands on all five again.
//
//verify:fault A quorum of five Redis | the store is restarted
//verify:fault A quorum of five Redis | nodes killed, stopped, wiped, restarted, slowed
func TestTwoOfFiveInTrouble(t *testing.T) {
	t.Parallel()
	for _, tr := range troubles {
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			const lease = 5 * time.Second
			of := ballot.Membership{Skew: time.Second, MaxTTL: 2 * lease}
			all := readyAs(t, servers(t, 5), of)
			c, other := clientAs(t, all, lease, of), clientAs(t, all, lease, of)
			held := lock(t, c, "held")
			before := free(t, other, "free", 5*time.Second)
			troubled := time.Now()
			for _, s := range all[:2] {
				steps.Must(t, tr.begin(s))
			}
			for i := range 5 {
				after := free(t, other, "free", 10*time.Second)
				steps.Rises(t, before.Token(), after.Token())
				before = after
				free(t, other, fmt.Sprint("new ", i), 10*time.Second)
				// Later, a try may come to a node whose quarantine is over before the lock
				// that is held is back there, and keep it out with its larger ballot.
				if time.Since(troubled) < of.MaxTTL/2 {
					_, err := other.TryLock(t.Context(), "held")
					steps.Is(t, "a try of what is held", err, fencelock.ErrNotAcquired)
				}
				pause(lease / 3)
			}
			steps.Must(t, held.Err())
			if tr.end != nil {
				for _, s := range all[:2] {
					steps.Must(t, tr.end(s))
				}
			}
			end := time.Now().Add(of.MaxTTL + 3*lease)
			for _, s := range all {
				for !holds(t, s, "held") {
					if time.Now().After(end) {
						t.Fatalf("the lock that is held is not back on %s", s.Addr())
					}
					pause(50 * time.Millisecond)
				}
			}
			steps.Must(t, held.Err())
			steps.Must(t, held.Release(t.Context()))
			steps.Rises(t, held.Token(), free(t, other, "held", 5*time.Second).Token())
		})
	}
}

// holds reports whether a server has a claim on key.
func holds(t *testing.T, s *testserver.Server, key string) bool {
	t.Helper()
	held, err := s.Ask("HEXISTS", "fencelock:{"+key+"}", "held")
	steps.Must(t, err)
	return held == "1"
}

// With three of five gone nobody is granted anything, and who holds is told in time.
//
//verify:fault A quorum of five Redis | the store is restarted
//verify:fault A quorum of five Redis | a majority
func TestThreeOfFiveKilled(t *testing.T) {
	t.Parallel()
	all := ready(t, 5)
	c, other := client(t, all, lease), client(t, all, lease)
	held := lock(t, c, "held")
	for _, s := range all[:3] {
		steps.Must(t, s.Kill())
	}
	killed := time.Now()
	if _, err := other.Lock(t.Context(), "free", fencelock.Wait(lease)); !errors.Is(err, fencelock.ErrUnavailable) {
		t.Errorf("with three of five killed a lock answered %v; want ErrUnavailable", err)
	}
	at := lost(t, held, 2*lease)
	if d := held.Deadline().Sub(killed); d > lease {
		t.Errorf("the holder believed until %v after the majority was killed; its lease is %v", d, lease)
	}
	t.Logf("the holder was told %v after its deadline", at.Sub(held.Deadline()))
	for _, s := range all[:3] {
		steps.Must(t, s.Restart())
	}
	// They have lost their data, so they wait.
	if _, err := other.TryLock(t.Context(), "held"); !errors.Is(err, fencelock.ErrUnavailable) || !errors.As(err, new(*ballot.QuarantineError)) {
		t.Errorf("a try during the quarantine answered %v; want ErrUnavailable with a *QuarantineError", err)
	}
	next := free(t, other, "held", membership.MaxTTL+5*time.Second)
	steps.Rises(t, held.Token(), next.Token())
}

// All five lose their data while a lock is held: its holder loses it, and for the
// quarantine nobody else gets it, so the two never overlap.
//
//verify:fault A quorum of five Redis | a majority
func TestAllFiveWiped(t *testing.T) {
	t.Parallel()
	all := ready(t, 5)
	c, other := client(t, all, lease), client(t, all, lease)
	held := lock(t, c, "k")
	for _, s := range all {
		ask(t, s, "FLUSHALL")
	}
	wiped := time.Now()
	got := make(chan time.Time, 1)
	go func() {
		next, err := other.Lock(t.Context(), "k")
		got <- time.Now()
		if err != nil {
			t.Error(err)
			return
		}
		steps.Rises(t, held.Token(), next.Token())
		next.Release(t.Context())
	}()
	told := lost(t, held, 2*lease)
	at := <-got
	if !at.After(told) {
		t.Errorf("the next holder came %v before the one before it was told", told.Sub(at))
	}
	if d := at.Sub(wiped); d < membership.MaxTTL {
		t.Errorf("a lock was granted %v after all servers were wiped; want none for %v", d, membership.MaxTTL)
	}
}

// A quorum that nobody has initialised comes to work by itself.
//
//verify:fault A quorum of five Redis | the store is restarted
func TestNewQuorumWaitsOutItsQuarantine(t *testing.T) {
	t.Parallel()
	all := servers(t, 3)
	t.Cleanup(func() { tidy(t, all) })
	c := client(t, all, lease)
	start := time.Now()
	free(t, c, "k", membership.MaxTTL+5*time.Second)
	if d := time.Since(start); d < membership.MaxTTL {
		t.Errorf("a new quorum granted a lock after %v; want nothing for %v", d, membership.MaxTTL)
	}
}

// A free lock costs one request per node to take, and one to release; a renewal one.
//
//verify:fault A quorum of five Redis | requests of a free lock and of its release
func TestRequestsOfAFreeLock(t *testing.T) {
	t.Parallel()
	all := readyAs(t, servers(t, 5), lasting) // no renewal comes by itself
	b := openAs(t, all, lasting)
	// Without Alarm: whoever holds for a tenth of a second, as a busy machine may make
	// this test do, would subscribe to it, once.
	quiet := shared{b}
	c, another := testclient.New(t, quiet, nil), testclient.New(t, quiet, &fencelock.Options{Owner: "another"})
	warm := lock(t, c, "warm") // connections, and the scripts
	steps.Must(t, warm.Renew(t.Context()))
	steps.Must(t, warm.Release(t.Context()))
	settle := func() { steps.Must(t, b.Settle(t.Context())) }
	settle()
	for what, f := range map[string]struct {
		calls int // of each node
		spare int // nodes that may have been asked once less
		do    func()
	}{
		"lock and release": {2, 0, func() { free(t, c, "k", 5*time.Second) }},
		// And the holder's own two. A node whose turn has not come when a majority has
		// refused need not be asked.
		"a refusal": {1 + 2, 2, func() {
			l := lock(t, c, "taken")
			settle()
			steps.Is(t, "a try", steps.ErrOf(another.TryLock(t.Context(), "taken")), fencelock.ErrNotAcquired)
			settle()
			steps.Must(t, l.Release(t.Context()))
		}},
		"lock, renew and release": {3, 0, func() {
			l := lock(t, c, "k")
			settle()
			steps.Must(t, l.Renew(t.Context()))
			settle()
			steps.Must(t, l.Release(t.Context()))
		}},
	} {
		for _, s := range all {
			ask(t, s, "CONFIG", "RESETSTAT")
		}
		f.do()
		settle()
		less := 0
		for _, s := range all {
			n, err := s.Calls("evalsha", "eval", "publish", "subscribe")
			steps.Must(t, err)
			if n == f.calls-1 {
				less++
			}
			if n != f.calls && (n != f.calls-1 || less > f.spare) {
				t.Errorf("%s cost %s %d requests; want %d", what, s.Addr(), n, f.calls)
			}
		}
	}
}

// shared is a backend that two Clients of one test use, so that both settle together.
type shared struct{ driver.Backend }

func (shared) Open() error { return nil }

// One server has two names, and the quorum says so when it is set up and when it is asked. A lock on
// it needs all of its stores, and has them.
//
//verify:fault A quorum of five Redis | one server twice
func TestOneServerTwiceIsFoundOut(t *testing.T) {
	t.Parallel()
	all := ready(t, 3)
	all = append(all[:2], all[0])
	b := open(t, all)
	for what, err := range map[string]error{
		"Distinct": b.Distinct(t.Context()), "Initialise": b.Initialise(t.Context()),
	} {
		if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "node 1 ("+all[0].Addr()+") and node 3") {
			t.Errorf("%s of a quorum with one server twice returned %v; want an error that names both", what, err)
		}
	}
	c := testclient.New(t, b, nil)
	for range 3 {
		free(t, c, "k", 5*time.Second)
		steps.Must(t, b.Settle(t.Context()))
	}
	steps.Must(t, all[1].Pause())
	steps.Is(t, "with one store of two a lock", steps.ErrOf(c.TryLock(t.Context(), "k")), fencelock.ErrUnavailable)
	steps.Must(t, all[1].Continue())
	steps.Must(t, b.Settle(t.Context()))
}

// The servers answer so late that an Enter is sent twice, and is refused. The second copy may still
// arrive, so they keep the ID out. A Client comes with another ID.
//
//verify:fault A quorum of five Redis | a request sent twice
func TestClaimThatWasSentTwiceComesWithAnotherID(t *testing.T) {
	t.Parallel()
	all := readyAs(t, servers(t, 3), lasting) // nobody waits for the end of a lease
	b := openAs(t, all, lasting)
	c := testclient.New(t, b, nil)
	other := testclient.New(t, openAs(t, all, lasting), nil)
	steps.Eventually(t, "the ID of a refused claim is kept out", func() bool {
		free(t, c, "near", 5*time.Second) // from a server that has just answered soon, the next answer is late soon
		held := lock(t, other, "k")
		again := ballotOn("k")
		again.Ballot, again.TTL = 0, time.Minute
		for _, s := range all {
			steps.Must(t, s.Pause())
			time.AfterFunc(300*time.Millisecond, func() { s.Continue() })
		}
		if _, err := b.Enter(t.Context(), again); !errors.As(err, new(*driver.BusyError)) {
			t.Errorf("Enter of a lock that is held answered %v; want a *BusyError", err)
		}
		steps.Must(t, held.Release(t.Context()))
		k, err := b.Enter(t.Context(), again)
		switch {
		case driver.Gone(err):
			return true
		case errors.As(err, new(*driver.BusyError)):
			return false // a member is late to hear of the Release, which a majority has confirmed
		}
		steps.Must(t, err)
		steps.Must(t, b.Leave(t.Context(), k, driver.Exit{}))
		return false // it was sent once
	})
	free(t, c, "k", 5*time.Second)
}
