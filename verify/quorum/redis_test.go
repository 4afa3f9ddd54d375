package quorum_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
)

// A Redis that has its data again after a restart may still have lost what it
// acknowledged last. It knows by its run id that it was restarted, and takes no locks for
// a quarantine, unless Durable says that it loses nothing. Each lock is asked for twice:
// the first ballot notices, the second finds what the first has written. The one lock has
// a record, the other has none.
func TestRedisMemberThatKeepsItsDataIsRestarted(t *testing.T) {
	t.Parallel()
	for _, m := range []driver.Membership{lasting, durable} {
		s := testserver.Redis(t, testserver.Persist(true))
		b, end := member(s.Addr(), m)
		t.Cleanup(end)
		vote := func(key string) error {
			c := ballotOn(key)
			k, err := b.Enter(t.Context(), c)
			if err != nil {
				return err
			}
			return b.Leave(t.Context(), k, driver.Exit{})
		}
		check(t, b.(driver.Member).Initialise(t.Context()))
		check(t, vote("known"))
		check(t, s.Kill())
		check(t, s.Restart())
		for _, key := range []string{"known", "new", "known", "new"} {
			err := vote(key)
			switch q := (*driver.QuarantineError)(nil); {
			case m.Durable && err != nil:
				t.Errorf("a durable member that was restarted answered a ballot on %q with %v", key, err)
			case !m.Durable && !errors.As(err, &q):
				t.Errorf("a member that was restarted answered a ballot on %q with %v; want a *QuarantineError", key, err)
			case !m.Durable && (q.Left <= m.MaxTTL-time.Minute || q.Left > m.MaxTTL):
				t.Errorf("a quarantine of %v is said to last %v", m.MaxTTL, q.Left)
			}
		}
		check(t, b.(driver.Member).Initialise(t.Context()))
		check(t, vote("new"))
	}
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
		if _, err := b.Enter(t.Context(), c); !errors.As(err, new(driver.ErrBallot)) {
			t.Errorf("a ballot %v ahead of the clock was answered with %v; want an ErrBallot", 2*lasting.Skew, err)
		}
		if again {
			break
		}
		k, err := b.Enter(t.Context(), ballotOn("k"))
		check(t, err)
		check(t, b.Leave(t.Context(), k, driver.Exit{}))
	}
}
