package quorum_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
)

// A restarted Redis may have lost what it acknowledged last, so it takes no locks for a
// quarantine, unless it is Durable. Each lock is asked for twice: the first ballot notices, and
// the second finds its note. A dump names the old replication history if there was a replica.
func TestRedisMemberThatKeepsItsDataIsRestarted(t *testing.T) {
	t.Parallel()
	for _, m := range []driver.Membership{lasting, durable} {
		for _, dump := range []bool{false, true} {
			s := testserver.Redis(t, testserver.Persist(!dump), soonInSync)
			b, end := member(s.Addr(), m)
			t.Cleanup(end)
			check(t, b.(driver.Member).Initialise(t.Context()))
			check(t, ballotAndLeave(t, b, "known"))
			if dump {
				follow(t, testserver.Redis(t), s)
				until(t, "the dump is written", func() error {
					_, err := s.Ask("SAVE") // the one for the replica may not be over
					return err
				})
			}
			check(t, s.Kill())
			check(t, s.Restart())
			for _, key := range []string{"known", "new", "known", "new"} {
				err := ballotAndLeave(t, b, key)
				if m.Durable && err != nil {
					t.Errorf("a durable member that was restarted answered a ballot on %q with %v", key, err)
				}
				if !m.Durable {
					wantQuarantine(t, m, err)
				}
			}
			check(t, b.(driver.Member).Initialise(t.Context()))
			check(t, ballotAndLeave(t, b, "new"))
		}
	}
}

// A member that was a replica has the data of another server, which may lack its last grants. It is
// the same run of the server, and a durable disk does not help.
func TestRedisMemberThatWasAReplicaWaitsOutAQuarantine(t *testing.T) {
	t.Parallel()
	for _, m := range []driver.Membership{lasting, durable} {
		s, other := testserver.Redis(t, soonInSync), testserver.Redis(t, soonInSync)
		b, end := member(s.Addr(), m)
		t.Cleanup(end)
		check(t, b.(driver.Member).Initialise(t.Context()))
		check(t, ballotAndLeave(t, b, "k"))
		follow(t, other, s)
		ask(t, other, "REPLICAOF", "NO", "ONE")
		_, err := b.Enter(t.Context(), ballotOn("lost")) // the other server does not hear of it
		check(t, err)
		follow(t, s, other)
		ask(t, s, "REPLICAOF", "NO", "ONE")
		for _, key := range []string{"lost", "k", "lost", "k"} {
			wantQuarantine(t, m, ballotAndLeave(t, b, key))
		}
		check(t, b.(driver.Member).Initialise(t.Context()))
		check(t, ballotAndLeave(t, b, "k"))
	}
}

// A replica that takes writes loses them when it is synchronised. Its master's history and
// membership do not make a member of it.
func TestRedisReplicaThatTakesWritesIsNoMember(t *testing.T) {
	t.Parallel()
	s, copied := testserver.Redis(t, soonInSync), testserver.Redis(t, testserver.Config("replica-read-only no"))
	b := openMember(t, s)
	check(t, b.(driver.Member).Initialise(t.Context()))
	check(t, ballotAndLeave(t, b, "k"))
	follow(t, copied, s)
	check(t, ballotAndLeave(t, b, "k")) // its first replica began a new history, which it notes
	until(t, "the replica has heard of it", func() error {
		if known := ask(t, copied, "GET", "fencelock:@member"); !strings.Contains(known, replicationID(t, copied)) {
			return errors.New("it has not: " + known)
		}
		return nil
	})
	second := openMember(t, copied)
	for _, key := range []string{"k", "new", "k", "new"} {
		wantQuarantine(t, lasting, ballotAndLeave(t, second, key))
	}
	check(t, ballotAndLeave(t, b, "k"))
}

// A master whose last replica has been gone for repl-backlog-ttl begins a new history
// without having lost anything.
func TestRedisMemberThatBeginsANewHistoryGoesOn(t *testing.T) {
	t.Parallel()
	s, other := testserver.Redis(t, testserver.Config("repl-backlog-ttl 1"), soonInSync), testserver.Redis(t)
	b := openMember(t, s)
	check(t, b.(driver.Member).Initialise(t.Context()))
	check(t, ballotAndLeave(t, b, "k"))
	follow(t, other, s)
	before := replicationID(t, s)
	ask(t, other, "REPLICAOF", "NO", "ONE")
	until(t, "the history is a new one", func() error {
		if replicationID(t, s) == before {
			return errors.New("it is the old one")
		}
		return nil
	})
	for _, key := range []string{"k", "new", "k", "new"} {
		check(t, ballotAndLeave(t, b, key))
	}
	if known := ask(t, s, "GET", "fencelock:@member"); !strings.Contains(known, replicationID(t, s)) {
		t.Errorf("the member has not noted its new history %s: %s", replicationID(t, s), known)
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
func wantQuarantine(t *testing.T, m driver.Membership, err error) {
	t.Helper()
	switch q := (*driver.QuarantineError)(nil); {
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
	check(t, err)
	ask(t, s, "REPLICAOF", host, port)
	until(t, "the replica has its master's data", func() error {
		if state := ask(t, s, "INFO", "replication"); !strings.Contains(state, "master_link_status:up") {
			return errors.New("it has not")
		}
		return nil
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
	check(t, err)
	return answer
}

// A Redis remembers what its quorum has agreed on, also for a lock that is free and for
// whoever asks when all else is well.
func TestRedisMemberRefusesAnotherMembership(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	b := openMember(t, s)
	check(t, b.(driver.Member).Initialise(t.Context()))
	k, err := b.Enter(t.Context(), ballotOn("k"))
	check(t, err)
	check(t, b.Leave(t.Context(), k, driver.Exit{}))
	other, end := member(s.Addr(), driver.Membership{Skew: lasting.Skew, MaxTTL: 2 * lasting.MaxTTL})
	t.Cleanup(end)
	for _, key := range []string{"k", "new"} {
		if _, err := other.Enter(t.Context(), ballotOn(key)); !errors.As(err, new(*driver.PermanentError)) {
			t.Errorf("a ballot on %q by another Membership was answered with %v; want a *PermanentError", key, err)
		}
	}
}

// A lease that is longer than the clocks may be apart does not make room for ballots that
// are further ahead.
func TestRedisMemberTakesNoBallotFromFarAhead(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	b := openMember(t, s)
	check(t, b.(driver.Member).Initialise(t.Context()))
	for _, again := range []bool{false, true} { // the second time there is a record
		c := ballotOn("k")
		c.TTL = 10 * lasting.Skew
		c.Ballot += (2 * lasting.Skew).Microseconds()
		if _, err := b.Enter(t.Context(), c); !errors.As(err, new(driver.BallotError)) {
			t.Errorf("a ballot %v ahead of the clock was answered with %v; want an BallotError", 2*lasting.Skew, err)
		}
		if again {
			break
		}
		k, err := b.Enter(t.Context(), ballotOn("k"))
		check(t, err)
		check(t, b.Leave(t.Context(), k, driver.Exit{}))
	}
}
