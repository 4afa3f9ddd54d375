package quorum_test

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
)

var durable = ballot.Membership{Skew: lasting.Skew, MaxTTL: lasting.MaxTTL, Durable: true}

// A restarted Redis may have lost what it acknowledged last, so it takes no locks for a
// quarantine, unless it is Durable and writes a log. Each lock is asked for twice: the first
// ballot notices, and the second finds its note. A dump names the old replication history if
// there was a replica.
func TestRedisMemberThatKeepsItsDataIsRestarted(t *testing.T) {
	t.Parallel()
	for _, m := range []ballot.Membership{lasting, durable} {
		for _, dump := range []bool{false, true} {
			s := testserver.Redis(t, testserver.Persist(!dump), soonInSync)
			b, end := member(s.Addr(), m)
			t.Cleanup(end)
			steps.Must(t, b.(ballot.Member).Initialise(t.Context()))
			steps.Must(t, ballotAndLeave(t, b, "known"))
			if dump {
				follow(t, testserver.Redis(t), s)
				eventually(t, "the dump is written", func() bool {
					return steps.ErrOf(s.Ask("SAVE")) == nil // the one for the replica may not be over
				})
			}
			steps.Must(t, s.Kill())
			steps.Must(t, s.Restart())
			for _, key := range []string{"known", "new", "known", "new"} {
				err := ballotAndLeave(t, b, key)
				if !m.Durable || dump {
					wantQuarantine(t, m, err)
				} else if err != nil {
					t.Errorf("a durable member that was restarted answered a ballot on %q with %v", key, err)
				}
			}
			steps.Must(t, b.(ballot.Member).Initialise(t.Context()))
			steps.Must(t, ballotAndLeave(t, b, "new"))
		}
	}
}

// A Durable member dies, and its replica takes over its address. The replica lags behind: it lacks a
// lock that is held on the member that died and on one other. It is promoted, or started again as
// a master. A second holder must not come, however often it asks.
func TestReplicaThatTakesOverADurableMemberWaitsOutAQuarantine(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted=%v", restarted), func(t *testing.T) {
			t.Parallel()
			all := servers(t, 3, testserver.Persist(true), soonInSync)
			replica := testserver.Redis(t, testserver.Persist(true))
			follow(t, replica, all[1])
			ready(t, all, durable)
			eventually(t, "the replica knows the member, and has written its log", func() bool {
				return ask(t, replica, "GET", "fencelock:@member") == ask(t, all[1], "GET", "fencelock:@member") &&
					strings.Contains(ask(t, replica, "INFO", "persistence"), "aof_rewrite_in_progress:0")
			})
			ask(t, replica, "REPLICAOF", "127.0.0.1", "1") // its connection is cut

			first, end := quorumOf([]string{all[0].Addr(), all[1].Addr(), "127.0.0.1:1"}, durable)
			t.Cleanup(end)
			held := lock(t, testclient.New(t, first, nil), "k")
			steps.Must(t, all[1].Kill())
			ask(t, replica, "REPLICAOF", "NO", "ONE")
			if restarted {
				steps.Must(t, replica.Stop())
				steps.Must(t, replica.Restart())
			}

			second, end := quorumOf([]string{all[0].Addr(), replica.Addr(), all[2].Addr()}, durable)
			t.Cleanup(end)
			other := testclient.New(t, second, nil)
			for range 2 {
				_, err := other.TryLock(t.Context(), "k")
				if !errors.Is(err, fencelock.ErrUnavailable) && !errors.Is(err, fencelock.ErrNotAcquired) {
					t.Errorf("beside a holder that lost nothing, a second one was answered %v", err)
				}
				replicaMember, end := member(replica.Addr(), durable)
				wantQuarantine(t, durable, ballotAndLeave(t, replicaMember, "another"))
				end()
			}
			steps.Must(t, held.Err())
			_ = held.Release(t.Context()) // one member of three confirms it
		})
	}
}

// A member that was a replica has the data of another server, which may lack its last grants. It is
// the same run of the server, and a durable disk does not help.
func TestRedisMemberThatWasAReplicaWaitsOutAQuarantine(t *testing.T) {
	t.Parallel()
	for _, m := range []ballot.Membership{lasting, durable} {
		s, other := testserver.Redis(t, soonInSync), testserver.Redis(t, soonInSync)
		b, end := member(s.Addr(), m)
		t.Cleanup(end)
		steps.Must(t, b.(ballot.Member).Initialise(t.Context()))
		steps.Must(t, ballotAndLeave(t, b, "k"))
		follow(t, other, s)
		ask(t, other, "REPLICAOF", "NO", "ONE")
		_, err := b.Enter(t.Context(), ballotOn("lost")) // the other server does not hear of it
		steps.Must(t, err)
		follow(t, s, other)
		ask(t, s, "REPLICAOF", "NO", "ONE")
		for _, key := range []string{"lost", "k", "lost", "k"} {
			wantQuarantine(t, m, ballotAndLeave(t, b, key))
		}
		steps.Must(t, b.(ballot.Member).Initialise(t.Context()))
		steps.Must(t, ballotAndLeave(t, b, "k"))
	}
}

// A replica that takes writes loses them when it is synchronised. Its master's history and
// membership do not make a member of it.
func TestRedisReplicaThatTakesWritesIsNoMember(t *testing.T) {
	t.Parallel()
	s, copied := testserver.Redis(t, soonInSync), testserver.Redis(t, testserver.Config("replica-read-only no"))
	b := openMember(t, s)
	steps.Must(t, b.(ballot.Member).Initialise(t.Context()))
	steps.Must(t, ballotAndLeave(t, b, "k"))
	follow(t, copied, s)
	steps.Must(t, ballotAndLeave(t, b, "k")) // its first replica began a new history, which it notes
	eventually(t, "the replica has heard of it", func() bool {
		return strings.Contains(ask(t, copied, "GET", "fencelock:@member"), replicationID(t, copied))
	})
	second := openMember(t, copied)
	for _, key := range []string{"k", "new", "k", "new"} {
		wantQuarantine(t, lasting, ballotAndLeave(t, second, key))
	}
	steps.Must(t, ballotAndLeave(t, b, "k"))
}

// A master whose last replica has been gone for repl-backlog-ttl begins a new history
// without having lost anything.
func TestRedisMemberThatBeginsANewHistoryGoesOn(t *testing.T) {
	t.Parallel()
	s, other := testserver.Redis(t, testserver.Config("repl-backlog-ttl 1"), soonInSync), testserver.Redis(t)
	b := openMember(t, s)
	steps.Must(t, b.(ballot.Member).Initialise(t.Context()))
	steps.Must(t, ballotAndLeave(t, b, "k"))
	follow(t, other, s)
	before := replicationID(t, s)
	ask(t, other, "REPLICAOF", "NO", "ONE")
	eventually(t, "the history is a new one", func() bool { return replicationID(t, s) != before })
	for _, key := range []string{"k", "new", "k", "new"} {
		steps.Must(t, ballotAndLeave(t, b, key))
	}
	if known := ask(t, s, "GET", "fencelock:@member"); !strings.Contains(known, replicationID(t, s)) {
		t.Errorf("the member has not noted its new history %s: %s", replicationID(t, s), known)
	}
}

// A member boots with a clock that is an hour behind, loses its data, is asked, and then its clock is
// stepped. What counts is the time since a ballot that the clock agreed with. (The ballots
// come from a clock an hour ahead; the note of the member goes back by an hour when the clock is
// stepped.)
func TestQuarantineOfAMemberThatBootsWithAWrongClock(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{-time.Hour, time.Hour, -2 * lasting.Skew} {
		s := testserver.Redis(t)
		b := openMember(t, s)
		c := ballotOn("k")
		c.Ballot -= off.Microseconds()
		_, err := b.Enter(t.Context(), c)
		wantQuarantine(t, lasting, err)
		if err == nil || !strings.Contains(err.Error(), "its clock and the clock of this client are") {
			t.Errorf("a clock that is off by %v was answered with %v; want an error that says so", off, err)
		}
		if note, known := strings.CutPrefix(ask(t, s, "GET", "fencelock:@member"), "1 "); known {
			born, rest, _ := strings.Cut(note, " ")
			µs, err := strconv.ParseInt(born, 10, 64)
			steps.Must(t, err)
			ask(t, s, "SET", "fencelock:@member", fmt.Sprintf("1 %016d %s", µs+off.Microseconds(), rest))
		}
		for range 2 {
			wantQuarantine(t, lasting, ballotAndLeave(t, b, "k"))
		}
		if note := ask(t, s, "GET", "fencelock:@member"); !strings.HasPrefix(note, "1 ") {
			t.Errorf("a ballot within the skew did not begin the quarantine: the member is %q", note)
		}
	}
}

// An old claim comes back to a member that lost its data. Its ballot is far below the clock, and its
// client's clock is right: that begins the quarantine, where nobody else may ever ask.
func TestReentryBeginsTheQuarantine(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	b := openMember(t, s)
	old := ballotOn("k")
	old.Ballot -= time.Hour.Microseconds()
	_, err := b.(ballot.Member).Reenter(t.Context(), old)
	wantQuarantine(t, lasting, err)
	if note := ask(t, s, "GET", "fencelock:@member"); !strings.HasPrefix(note, "1 ") {
		t.Errorf("the re-entry did not begin the quarantine: the member is %q", note)
	}
}

// ballotAndLeave proposes a ballot on key, and leaves if it is granted.
func ballotAndLeave(t *testing.T, b driver.Backend, key string) error {
	t.Helper()
	k, err := b.Enter(t.Context(), ballotOn(key))
	if err != nil {
		return err
	}
	return b.Leave(t.Context(), k, driver.Exit{})
}

// wantQuarantine is called with the answer to a ballot of a member whose quarantine has
// just begun.
func wantQuarantine(t *testing.T, m ballot.Membership, err error) {
	t.Helper()
	switch q := (*ballot.QuarantineError)(nil); {
	case !errors.As(err, &q):
		t.Errorf("a member that may have lost something answered a ballot with %v; want a *QuarantineError", err)
	case q.Left <= m.MaxTTL-time.Minute || q.Left > m.MaxTTL:
		t.Errorf("a quarantine of %v is said to last %v", m.MaxTTL, q.Left)
	}
}

// soonInSync has a master not wait for more replicas before it sends its data.
var soonInSync = testserver.Config("repl-diskless-sync no")

// follow makes s a replica of master and waits until it has its data.
func follow(t *testing.T, s, master *testserver.Server) {
	t.Helper()
	host, port, err := net.SplitHostPort(master.Addr())
	steps.Must(t, err)
	ask(t, s, "REPLICAOF", host, port)
	eventually(t, "the replica has its master's data", func() bool {
		return strings.Contains(ask(t, s, "INFO", "replication"), "master_link_status:up")
	})
}

func replicationID(t *testing.T, s *testserver.Server) string {
	t.Helper()
	_, id, _ := strings.Cut(ask(t, s, "INFO", "replication"), "master_replid:")
	id, _, ok := strings.Cut(id, "\r")
	if !ok {
		t.Fatal("the server does not say what its history is called")
	}
	return id
}

func ask(t *testing.T, s *testserver.Server, args ...string) string {
	t.Helper()
	answer, err := s.Ask(args...)
	steps.Must(t, err)
	return answer
}

// A quorum remembers what it has agreed on, and changes that when its programs have stopped. Programs that say
// something else are refused before and after, and are told how to change it.
func TestMembershipIsChanged(t *testing.T) {
	t.Parallel()
	all := ready(t, servers(t, 3, testserver.Persist(true)), lasting)
	before, after := open(t, all, lasting), open(t, all, durable)
	held := testclient.New(t, before, nil)
	free(t, held, "k")
	steps.Must(t, before.Settle(t.Context())) // one member may be late to hear of the release
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "init --change") {
			t.Errorf("%s returned %v; want driver.ErrPermanent, and a text that names init --change", what, err)
		}
	}
	for _, of := range []ballot.Membership{durable, {Skew: lasting.Skew, MaxTTL: 2 * lasting.MaxTTL}} {
		another := open(t, all, of)
		for _, key := range []string{"k", "new"} { // a lock that is free, and one that never was
			_, err := another.Enter(t.Context(), steps.NoWait(steps.Claim(key)))
			refused("Enter with another Membership", err)
		}
	}
	refused("Initialise with another Membership", after.Initialise(t.Context()))
	steps.Must(t, after.ChangeMembership(t.Context()))
	_, err := held.TryLock(t.Context(), "k")
	refused("a lock with the Membership of before", err)
	free(t, testclient.New(t, after, nil), "k")
	steps.Must(t, after.Settle(t.Context())) // Close cuts off a Leave
}

// Two of three members became replicas that take writes. For a program that begins then, the URL is right: a
// failover may be under way, so it may wait.
func TestMembersThatBecameReplicasAreRefusedForNow(t *testing.T) {
	t.Parallel()
	all := servers(t, 3, soonInSync, testserver.Config("replica-read-only no"))
	ready(t, all, ballot.Membership{})
	follow(t, all[1], all[0])
	follow(t, all[2], all[0])
	q, err := storeurl.Open(t.Context(), "redlock://"+strings.Join(addrs(all), ","))
	steps.Must(t, err)
	t.Cleanup(q.Close)
	_, err = testclient.New(t, q.Backend, nil).TryLock(t.Context(), "k")
	if !errors.Is(err, fencelock.ErrUnavailable) || errors.Is(err, fencelock.ErrPermanent) {
		t.Fatalf("one of three members is a master, and the quorum answered %v", err)
	}
}
