package drivertest

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// beyond is further than the clocks of any two members may be apart.
const beyond = 16 * time.Minute

var ballotLaws = []law{
	{"BallotIsTheToken", ballots, func(w *world, key string) {
		c := w.vote(key, time.Now().UnixMicro()+5)
		c.Span = 100
		t := w.a.holds(c)
		w.wrongIf(t.Token != c.Ballot, "the ballot %d was granted as the token %d", c.Ballot, t.Token)
		s, _ := t.standing()
		w.wrongIf(s.Token != c.Ballot || s.Span != c.Span,
			"the ballot %d with span %d is shown as %+v", c.Ballot, c.Span, s)
		t.leaves()
		w.b.holds(w.claim(c.Key)).follows(t) // though it has no ballot
	}, "a quorum proposes one token to all of its nodes: a node that grants another one leaves it without any"},
	{"BallotMustBeAboveTheFloor", ballots, func(w *world, key string) {
		first := w.voter(key)
		first.Span = 100
		w.a.holds(first).leaves()
		for _, b := range []int64{first.Ballot - 1, first.Ballot, first.Ballot + 1, first.Ballot + 99} {
			last := w.b.outvoted(w.vote(first.Key, b))
			w.wrongIf(last < first.Ballot+99,
				"the answer says %d after the ballot %d with a span of 100", last, first.Ballot)
		}
		last := w.b.outvoted(w.vote(first.Key, first.Ballot))
		t := w.b.holds(w.vote(first.Key, last+1))
		w.wrongIf(t.Token != last+1,
			"the ballot %d, one above what the node said, was granted as %d", last+1, t.Token)
	}, "two majorities share a node: only its larger later ballot keeps a quorum's tokens unique and rising"},
	{"BallotMustNotBeFarBelowTheClock", ballots, func(w *world, key string) {
		for _, b := range []int64{1, time.Now().Add(-beyond).UnixMicro()} {
			last := w.a.outvoted(w.vote(key, b))
			w.wrongIf(last < b, "the ballot %d was refused with %d, which is below it", b, last)
		}
		w.b.holds(w.voter(key))
	}, "a wiped node knows nothing of the key: it grants nothing below its clock instead"},
	{"BallotMustNotBeFarAhead", ballots, func(w *world, key string) {
		for _, b := range []int64{time.Now().Add(beyond + time.Minute).UnixMicro(), 1 << 62} {
			last := w.a.outvoted(w.vote(key, b))
			w.wrongIf(last >= b, "the ballot %d was refused with %d", b, last)
		}
		w.b.holds(w.voter(key)) // and nothing was raised
	}, "tokens of a client an hour ahead would be forgotten with a wiped node: then smaller ones would pass"},
	{"BallotsDoNotClimb", ballots, func(w *world, key string) {
		start := time.Now()
		for ahead := time.Duration(0); ahead < beyond+time.Minute; ahead += 30 * time.Second {
			t, err := w.a.try(w.vote(key, start.Add(ahead).UnixMicro()))
			switch {
			case err == nil && ahead > beyond:
				w.t.Errorf("a ballot %v ahead of the clock was granted, with the help of those before it", ahead)
			case err == nil:
				t.leaves()
			case !errors.As(err, new(driver.ErrBallot)):
				w.t.Fatalf("a ballot %v ahead of the clock answered %v", ahead, err)
			}
		}
	}, "clients with fast clocks would climb on one another's ballots, beyond the clock of a wiped node"},
	{"RefusedBallotLeavesNothing", ballots, func(w *world, key string) {
		c := w.vote(key, 1)
		c.Ballot = w.a.outvoted(c) + 1
		w.b.empty(key)
		t := w.a.holds(c)
		t.leaves()
		w.b.empty(key)
	}, "the same claim comes again with a larger ballot: nothing of the first may stand in its way"},
	{"IdComesBeforeBallot", ballots, func(w *world, key string) {
		c := w.voter(key)
		first := w.a.holds(c)
		for _, b := range []int64{c.Ballot, 1, c.Ballot + 1, 1 << 62} {
			again := c
			again.Ballot = b
			t := w.a.holds(again)
			w.wrongIf(t.Token != first.Token,
				"the repeated Enter with ballot %d has token %d; want its own, %d", b, t.Token, first.Token)
		}
	}, "a repeated Enter has a ballot that its own first grant has used up: judged by it, the claim would be lost"},
	{"OthersComeBeforeBallot", ballots, func(w *world, key string) {
		first := w.a.holds(w.voter(key))
		for _, b := range []int64{1, first.Token + 1, 1 << 62} {
			busy := w.b.refused(w.vote(first.Key, b))
			w.wrongIf(busy.Token != first.Token,
				"refused with token %d; want that of the holder, %d", busy.Token, first.Token)
		}
		rests := w.vote(w.key(), 1)
		w.a.entomb(rests)
		w.a.keptOut("the delayed Enter", rests)
	}, "a taken lock is taken whatever the ballot: on ErrBallot a client asks again at once and never waits"},
	{"BallotsOfReadersRise", ballots, func(w *world, key string) {
		first := w.voter(key)
		first.Weight = 1
		w.a.holds(first)
		second := w.vote(first.Key, first.Ballot)
		second.Weight = 1
		second.Ballot = w.b.outvoted(second) + 1
		t := w.b.holds(second)
		w.wrongIf(t.Token != second.Ballot, "the ballot %d was granted as %d", second.Ballot, t.Token)
	}, "readers and writers have one floor: a reader that left it alone would let a writer have an old token"},
	{"FloorOutlivesClaims", ballots, func(w *world, key string) {
		c := w.voter(key)
		c.Span = 100
		t := w.a.holds(c)
		t.brokenBy(w.b, "over")
		w.b.outvoted(w.vote(c.Key, c.Ballot+99))
		timed(func(r *round, key string) {
			c := r.voter(key)
			c.TTL, c.Span = r.lease, driver.MaxSpan
			t := r.view().holds(c)
			t.crashes()
			t.expires()
			r.b.outvoted(r.vote(c.Key, c.Ballot))
		})(w, "")
	}, "a claim that was broken, or has expired, may still be writing with its token"},
	{"OneOfEqualBallotsWins", ballots, func(w *world, _ string) {
		for range races / 4 {
			key, b := w.key(), time.Now().UnixMicro()
			var won atomic.Int32
			w.each(senders, func(i int) {
				c := w.vote(key, b)
				c.Weight = 1 // readers would share, were it not for the ballot
				t, err := w.views()[i%2].try(c)
				switch {
				case err == nil && t.Granted && t.Token == b:
					won.Add(1)
				case !errors.As(err, new(driver.ErrBallot)):
					w.t.Errorf("an equal ballot was answered with token %d and error %v", t.Token, err)
				}
			})
			n := won.Load()
			w.wrongIf(n != 1, "%d of %d equal ballots were granted; want 1", n, senders)
		}
	}, "two clients may propose the same ballot in the same microsecond: the node is what tells them apart"},
	{"LostClaimReenters", ballots, func(w *world, _ string) {
		timed(func(r *round, key string) {
			c := r.voter(key)
			c.TTL = r.lease
			r.a.holds(c).expires()
			c.TTL = r.claim(c.Key).TTL
			t := r.a.back(c)
			r.wrongIf(t.Token != c.Ballot, "the claim with ballot %d re-entered as %d", c.Ballot, t.Token)
			r.b.refused(r.voter(c.Key))
		})(w, "")
		// Nothing is known of this key, and the claim is older than any ballot may be.
		old := w.vote(w.key(), time.Now().Add(-2*beyond).UnixMicro())
		w.a.outvoted(old)
		t := w.a.back(old)
		again := w.a.back(old)
		w.wrongIf(again.Token != old.Ballot || t.Token != old.Ballot,
			"the claim with ballot %d re-entered as %d, and again as %d", old.Ballot, t.Token, again.Token)
		t.leaves()
		w.b.outvoted(w.vote(old.Key, time.Now().Add(-beyond).UnixMicro())) // the floor was not lowered
	}, "nodes restart one by one: a claim that does not come back to each is lost though no majority ever was"},
	{"ReentryDisturbsNobody", ballots, func(w *world, key string) {
		old := w.voter(key)
		w.a.holds(old).leaves()
		next := w.b.holds(w.vote(old.Key, old.Ballot+1))
		_, err := w.a.reenter(old)
		isA[*driver.BusyError](w, "a re-entry while another holds", err)
		next.leaves()
		_, err = w.a.reenter(old)
		isA[driver.ErrBallot](w, "a re-entry below a later token", err)
		w.b.outvoted(w.vote(old.Key, next.Token))

		rests := w.voter(w.key())
		w.a.entomb(rests)
		_, err = w.a.reenter(rests)
		w.gone("a re-entry of a claim with a tombstone", err)

		broken := w.voter(w.key())
		w.a.holds(broken).brokenBy(w.b, "enough")
		_, err = w.a.reenter(broken)
		w.broken("a re-entry that was broken", "enough", err)
	}, "a re-entry may arrive late, when the claim is over and others have come: it must find the door shut"},
	{"EqualBallotReentersAlone", ballots, func(w *world, key string) {
		first := w.voter(key)
		first.Weight = 1
		w.a.holds(first)
		other := w.vote(first.Key, first.Ballot)
		other.Weight = 1
		_, err := w.b.reenter(other)
		isA[driver.ErrBallot](w, "a re-entry with the token of a reader in line", err)
	}, "a reader comes back with the last token drawn: beside another reader that token may be the other's"},
	{"InitialiseForgetsNothing", ballots, func(w *world, key string) {
		held := w.a.holds(w.voter(key))
		c := w.voter(w.key())
		w.a.holds(c).leaves()
		w.must("Initialise", w.b.Backend.(driver.Member).Initialise(w.ctx))
		held.stillHolds()
		w.b.refused(w.voter(held.Key))
		w.b.outvoted(w.vote(c.Key, c.Ballot))
		w.b.holds(w.vote(c.Key, c.Ballot+1))
	}, "an operator may run it twice, or on a node that is at work"},
	{"NewStoreIsInQuarantine", all(ballots, opensNew), func(w *world, key string) {
		b := &view{w.conf.fresh(), w}
		quarantined := func(_ *inLine, err error) {
			w.t.Helper()
			var q *driver.QuarantineError
			if !errors.As(err, &q) {
				w.t.Fatalf("a new store answered a ballot with %v; want a *QuarantineError", err)
			}
			w.wrongIf(q.Left <= 0 || q.Left > b.Info().MaxTTL,
				"a quarantine of %v is said to last %v", b.Info().MaxTTL, q.Left)
		}
		quarantined(b.try(w.voter(key)))
		quarantined(b.reenter(w.voter(w.key())))
		quarantined(b.try(w.vote(w.key(), 1)))
		w.must("Initialise", b.Backend.(driver.Member).Initialise(w.ctx))
		b.holds(w.voter(w.key())).leaves()
	}, "a store that lost its data may have granted a lock just before: let back at once, it grants that lock again"},
}

// voter is an exclusive claim that does not wait, with the clock for its ballot.
func (w *world) voter(key string) driver.Claim { return w.vote(key, time.Now().UnixMicro()) }

// vote is a claim with a ballot.
func (w *world) vote(key string, ballot int64) driver.Claim {
	c := noWait(w.claim(key))
	c.Ballot = ballot
	return c
}

// outvoted sends an Enter that must be refused for its ballot, and returns what the
// answer says of others.
func (v *view) outvoted(c driver.Claim) int64 {
	v.w.t.Helper()
	x, err := v.try(c)
	var floor driver.ErrBallot
	if !errors.As(err, &floor) {
		v.w.t.Fatalf("Enter on %q with ballot %d answered token %d and error %v; want ErrBallot",
			c.Key, c.Ballot, x.Token, err)
	}
	return floor.Last
}

// back sends a Reenter that must be granted.
func (v *view) back(c driver.Claim) *inLine {
	v.w.t.Helper()
	x, err := v.reenter(c)
	if err != nil || !x.Granted {
		v.w.t.Fatalf("Reenter on %q with ballot %d answered granted %v and error %v", c.Key, c.Ballot, x.Granted, err)
	}
	v.w.sound(c, x.Ticket)
	return x
}
