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
			all := ready(t, servers(t, 5), lasting)
			b := open(t, all, lasting)
			c, other := client(t, all, time.Minute), testclient.New(t, b, &fencelock.Options{TTL: time.Minute})
			held, before := lock(t, c, "held"), free(t, other, "free")
			for _, s := range all[:2] {
				steps.Must(t, tr.begin(s))
			}
			for i := range 5 {
				after := free(t, other, "free")
				steps.Rises(t, before.Token(), after.Token())
				before = after
				free(t, other, fmt.Sprint("new ", i))
				_, err := other.TryLock(t.Context(), "held")
				steps.Is(t, "a try of what is held", err, fencelock.ErrNotAcquired)
				steps.Must(t, held.Renew(t.Context()))
			}
			if tr.end != nil {
				for _, s := range all[:2] {
					steps.Must(t, tr.end(s))
				}
			}
			// A late try that comes to an empty server before the lock is back there keeps it out, with a larger ballot.
			steps.Must(t, b.Settle(t.Context()))
			renew := func() { steps.Must(t, held.Renew(t.Context())) }
			if tr.empties {
				endQuarantine(t, all[:2], renew)
			}
			for _, s := range all {
				eventually(t, "the lock that is held is back on "+s.Addr(), func() bool {
					renew()
					return holds(t, s, "held")
				})
			}
			steps.Must(t, held.Release(t.Context()))
			steps.Rises(t, held.Token(), free(t, other, "held").Token())
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

// With three of five gone nobody is granted anything, and who holds is told in time. Servers that come
// back without their data wait.
//
//verify:fault A quorum of five Redis | the store is restarted
//verify:fault A quorum of five Redis | a majority
func TestThreeOfFiveKilled(t *testing.T) {
	t.Parallel()
	all := ready(t, servers(t, 5), lasting)
	c, other := client(t, all, lease), client(t, all, time.Minute)
	held := lock(t, c, "held")
	for _, s := range all[:3] {
		steps.Must(t, s.Kill())
	}
	killed := time.Now()
	_, err := other.Lock(t.Context(), "free", fencelock.Wait(lease))
	steps.Is(t, "with three of five killed a lock", err, fencelock.ErrUnavailable)
	lost(t, held)
	if d := held.Deadline().Sub(killed); d > lease {
		t.Errorf("the holder believed until %v after the majority was killed; its lease is %v", d, lease)
	}
	for _, s := range all[:3] {
		steps.Must(t, s.Restart())
	}
	try := func() {
		_, err := other.TryLock(t.Context(), "held")
		if !errors.Is(err, fencelock.ErrUnavailable) || !errors.As(err, new(*ballot.QuarantineError)) {
			t.Errorf("a try during the quarantine answered %v; want ErrUnavailable with a *QuarantineError", err)
		}
	}
	try()
	endQuarantine(t, all[:3], func() { _, _ = other.TryLock(t.Context(), "new") })
	steps.Rises(t, held.Token(), free(t, other, "held").Token())
}

// All five lose their data while a lock is held: its holder loses it, and for the
// quarantine nobody else gets it, so the two never overlap.
//
//verify:fault A quorum of five Redis | a majority
func TestAllFiveWiped(t *testing.T) {
	t.Parallel()
	all := ready(t, servers(t, 5), lasting)
	c, other := client(t, all, lease), client(t, all, time.Minute)
	held := lock(t, c, "k")
	for _, s := range all {
		ask(t, s, "FLUSHALL")
	}
	got := make(chan *fencelock.Lease, 1)
	go func() {
		next, err := other.Lock(t.Context(), "k")
		steps.OK(t, err)
		got <- next
	}()
	lost(t, held)
	if len(got) > 0 {
		t.Error("the next holder came during the quarantine")
	}
	endQuarantine(t, all, func() {})
	if next := <-got; next != nil {
		steps.Rises(t, held.Token(), next.Token())
		steps.Must(t, next.Release(t.Context()))
	}
}

// A free lock costs one request per node to take, and one to release; a renewal one.
//
//verify:fault A quorum of five Redis | requests of a free lock and of its release
func TestRequestsOfAFreeLock(t *testing.T) {
	t.Parallel()
	all := ready(t, servers(t, 5), lasting) // no renewal comes by itself
	b := open(t, all, lasting)
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
		"lock and release": {2, 0, func() { free(t, c, "k") }},
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
		// A request that is late is sent again, so a machine that stands still may take more.
		eventually(t, fmt.Sprintf("%s costs each server %d requests", what, f.calls), func() bool {
			for _, s := range all {
				ask(t, s, "CONFIG", "RESETSTAT")
			}
			f.do()
			settle()
			other, less := 0, 0
			for _, s := range all {
				switch n, err := s.Calls("evalsha", "eval", "publish", "subscribe"); {
				case err != nil:
					t.Fatal(err)
				case n == f.calls-1:
					less++
				case n != f.calls:
					other++
				}
			}
			return other == 0 && less <= f.spare
		})
	}
}

// shared is a backend that two Clients of one test use, so that both settle together.
type shared struct{ driver.Backend }

func (shared) Open() error { return nil }

// One server has two names, and the quorum says so.
//
//verify:fault A quorum of five Redis | one server twice
func TestOneServerTwiceIsFoundOut(t *testing.T) {
	t.Parallel()
	all := ready(t, servers(t, 3), lasting)
	all = append(all[:2], all[0])
	b := open(t, all, lasting)
	err := b.Distinct(t.Context())
	if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "node 1 ("+all[0].Addr()+") and node 3") {
		t.Errorf("Distinct of a quorum with one server twice returned %v; want an error that names both", err)
	}
}

// The servers answer so late that an Enter is sent twice, and is refused. The second copy may still
// arrive, so they keep the ID out. A Client comes with another ID.
//
//verify:fault A quorum of five Redis | a request sent twice
func TestClaimThatWasSentTwiceComesWithAnotherID(t *testing.T) {
	t.Parallel()
	all := ready(t, servers(t, 3), lasting)
	b := open(t, all, lasting)
	c := testclient.New(t, b, nil)
	other := testclient.New(t, open(t, all, lasting), nil)
	eventually(t, "the ID of a refused claim is kept out", func() bool {
		free(t, c, "near") // from a server that has just answered soon, the next answer is late soon
		held := lock(t, other, "k")
		again := ballotOn("k")
		again.Ballot = 0
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
	free(t, c, "k")
}
