package drivertest

import (
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/internal/limit"
)

// beyond is further than the clocks of any two members may be apart.
const beyond = 16 * time.Minute

var ballotLaws = []law{
	{"BallotIsTheToken", ballots, func(w *world, key string) {
		t := w.a.voted(spanning(w.vote(key, fromNow(5*time.Microsecond)), 100))
		t.stillSpans()
		t.leaves()
		w.b.holds(w.claim(key)).follows(t) // though it has no ballot
	}, "a quorum proposes one token to all of its nodes: a node that grants another one leaves it without any"},
	{"BallotMustBeAboveTheFloor", ballots, func(w *world, key string) {
		first := spanning(w.voter(key), 100)
		w.a.holds(first).leaves()
		for _, b := range []int64{first.Ballot - 1, first.Ballot, first.Ballot + 1, first.Ballot + 99} {
			last := w.b.outvoted(w.vote(key, b))
			w.wrongIf(last < first.Ballot+99,
				"the answer says %d after the ballot %d with a span of 100", last, first.Ballot)
		}
		w.b.voted(w.vote(key, w.b.outvoted(w.vote(key, first.Ballot))+1))
	}, "two majorities share a node: only its larger later ballot keeps a quorum's tokens unique and rising"},
	{"BallotMustNotBeFarBelowTheClock", ballots, func(w *world, key string) {
		for _, b := range []int64{1, fromNow(-beyond)} {
			last := w.a.outvoted(w.vote(key, b))
			w.wrongIf(last < b, "the ballot %d was refused with %d, which is below it", b, last)
		}
		w.b.holds(w.voter(key))
	}, "a wiped node knows nothing of the key: it grants nothing below its clock instead"},
	{"BallotMustNotBeFarAhead", ballots, func(w *world, key string) {
		for _, b := range []int64{fromNow(beyond + time.Minute), 1 << 62} {
			last := w.a.outvoted(w.vote(key, b))
			w.wrongIf(last >= b, "the ballot %d was refused with %d", b, last)
		}
		w.b.holds(w.voter(key)) // and nothing was raised
	}, "tokens of a client an hour ahead would be forgotten with a wiped node: then smaller ones would pass"},
	{"BallotsDoNotClimb", ballots, func(w *world, key string) {
		start := time.Now()
		for ahead := time.Duration(0); ahead < beyond+time.Minute; ahead += 30 * time.Second {
			t, err := w.a.try(w.vote(key, start.Add(ahead).UnixMicro()))
			if err != nil {
				_ = asA[ballot.Error](w, "a ballot ahead of the clock", err)
				continue
			}
			w.wrongIf(ahead > beyond, "a ballot %v ahead was granted, with the help of those before it", ahead)
			t.leaves()
		}
	}, "clients with fast clocks would climb on one another's ballots, beyond the clock of a wiped node"},
	{"RefusedBallotLeavesNothing", ballots, func(w *world, key string) {
		c := w.vote(key, 1)
		c.Ballot = w.a.outvoted(c) + 1
		w.b.empty(key)
		w.a.holds(c).leaves()
		w.b.empty(key)
	}, "the same claim comes again with a larger ballot: nothing of the first may stand in its way"},
	{"IdComesBeforeBallot", ballots, func(w *world, key string) {
		c := w.voter(key)
		first := w.a.holds(c)
		for _, b := range []int64{c.Ballot, 1, c.Ballot + 1, 1 << 62} {
			again := c
			again.Ballot = b
			same(w, "the token of the repeated Enter", w.a.holds(again).Token, first.Token)
		}
	}, "a repeated Enter has a ballot that its own first grant has used up: judged by it, the claim would be lost"},
	{"OthersComeBeforeBallot", ballots, func(w *world, key string) {
		first := w.a.holds(w.voter(key))
		for _, b := range []int64{1, first.Token + 1, 1 << 62} {
			same(w, "the token of the refusal", w.b.refused(w.vote(key, b)).Token, first.Token)
		}
		late := w.vote(w.key(), 1)
		w.a.entomb(late)
		w.a.keptOut(late)
	}, "a taken lock is taken whatever the ballot: on BallotError a client asks again at once and never waits"},
	{"BallotsOfReadersRise", ballots, func(w *world, key string) {
		first := reads(w.voter(key))
		w.a.holds(first)
		second := reads(w.vote(key, first.Ballot))
		second.Ballot = w.b.outvoted(second) + 1
		w.b.voted(second)
	}, "readers and writers have one floor: a reader that left it alone would let a writer have an old token"},
	{"FloorOutlivesClaims", ballots, timed(func(w *world, key string) {
		broken := spanning(w.voter(key), 100)
		w.a.holds(broken).brokenBy(w.b, "over")
		w.b.outvoted(w.vote(key, broken.Ballot+99))

		expired := lasting(spanning(w.voter(w.key()), limit.Span), w.lease)
		w.view().holds(expired).crashes().expires()
		w.b.outvoted(w.vote(expired.Key, expired.Ballot))
	}), "a claim that was broken, or has expired, may still be writing with its token"},
	{"OneOfEqualBallotsWins", ballots, func(w *world, _ string) {
		// Readers would share, were it not for the ballot.
		oneWins[ballot.Error](w, func() driver.Claim { return reads(w.voter(w.key())) })
	}, "two clients may propose the same ballot in the same microsecond: the node is what tells them apart"},
	{"LostClaimReenters", ballots, timed(func(w *world, key string) {
		c := w.voter(key)
		w.a.holds(lasting(c, w.lease)).expires()
		w.a.back(c)
		w.b.refused(w.voter(key))

		// Nothing is known of this key, and the claim is older than any ballot may be.
		old := w.vote(w.key(), fromNow(-2*beyond))
		w.a.outvoted(old)
		t := w.a.back(old)
		w.a.back(old)
		t.leaves()
		w.b.outvoted(w.vote(old.Key, fromNow(-beyond))) // the floor was not lowered
	}), "nodes restart one by one: a claim that does not come back to each is lost though no majority ever was"},
	{"ReentryDisturbsNobody", ballots, func(w *world, key string) {
		old := w.voter(key)
		w.a.holds(old).leaves()
		next := w.b.holds(w.vote(key, old.Ballot+1))
		_, err := w.a.reenter(old)
		_ = asA[*driver.BusyError](w, "a re-entry while another holds", err)
		next.leaves()
		_, err = w.a.reenter(old)
		_ = asA[ballot.Error](w, "a re-entry below a later token", err)
		w.b.outvoted(w.vote(key, next.Token))

		late := w.voter(w.key())
		w.a.entomb(late)
		_, err = w.a.reenter(late)
		w.gone("a re-entry of a claim with a tombstone", err)

		broken := w.voter(w.key())
		w.a.holds(broken).brokenBy(w.b, "enough")
		_, err = w.a.reenter(broken)
		w.broken("a re-entry that was broken", "enough", err)
	}, "a re-entry may arrive late, when the claim is over and others have come: it must find the door shut"},
	{"EqualBallotReentersAlone", ballots, func(w *world, key string) {
		first := reads(w.voter(key))
		w.a.holds(first)
		_, err := w.b.reenter(reads(w.vote(key, first.Ballot)))
		_ = asA[ballot.Error](w, "a re-entry with the token of a reader in line", err)
	}, "a reader comes back with the last token drawn: beside another reader that token may be the other's"},
	{"InitialiseForgetsNothing", ballots, func(w *world, key string) {
		held := w.a.holds(w.voter(key))
		c := w.voter(w.key())
		w.a.holds(c).leaves()
		w.must("Initialise", w.b.Backend.(ballot.Member).Initialise(w.ctx))
		held.stillHolds()
		w.b.refused(w.voter(held.Key))
		w.b.outvoted(w.vote(c.Key, c.Ballot))
		w.b.holds(w.vote(c.Key, c.Ballot+1))
	}, "an operator may run it twice, or on a node that is at work"},
	{"NewStoreIsInQuarantine", all(ballots, opensNew), func(w *world, key string) {
		b := &view{w.conf.fresh(), w}
		quarantined := func(_ *inLine, err error) {
			q := asA[*ballot.QuarantineError](w, "a new store", err)
			w.wrongIf(q != nil && (q.Left <= 0 || q.Left > b.Info().MaxTTL),
				"the quarantine is %+v; want it to last no longer than %v", q, b.Info().MaxTTL)
		}
		quarantined(b.try(w.voter(key)))
		quarantined(b.reenter(w.voter(w.key())))
		quarantined(b.try(w.vote(w.key(), 1)))
		w.must("Initialise", b.Backend.(ballot.Member).Initialise(w.ctx))
		b.holds(w.voter(w.key())).leaves()
	}, "a store that lost its data may have granted a lock just before: let back at once, it grants that lock again"},
}

// fromNow is the ballot that a clock shows which is ahead by d.
func fromNow(d time.Duration) int64 { return time.Now().Add(d).UnixMicro() }

// voter is an exclusive claim that does not wait, with the clock for its ballot.
func (w *world) voter(key string) driver.Claim { return w.vote(key, fromNow(0)) }

// vote is a claim with a ballot.
func (w *world) vote(key string, ballot int64) driver.Claim {
	c := noWait(w.claim(key))
	c.Ballot = ballot
	return c
}

// voted sends an Enter that must be granted with its ballot for its token.
func (v *view) voted(c driver.Claim) *inLine {
	x := v.holds(c)
	same(v.w, "the token granted to a ballot", x.Token, c.Ballot)
	return x
}

// outvoted sends an Enter that must be refused for its ballot, and returns the floor.
func (v *view) outvoted(c driver.Claim) int64 {
	x, err := v.try(c)
	var floor ballot.Error
	if !errors.As(err, &floor) {
		v.w.t.Fatalf("Enter on %q with ballot %d answered token %d and error %v; want BallotError",
			c.Key, c.Ballot, x.Token, err)
	}
	return floor.Last
}

// back sends a Reenter that must be granted, with the ballot of the claim for its token.
func (v *view) back(c driver.Claim) *inLine {
	x, err := v.reenter(c)
	if err != nil || !x.Granted {
		v.w.t.Fatalf("Reenter on %q with ballot %d answered granted %v and error %v", c.Key, c.Ballot, x.Granted, err)
	}
	v.w.sound(c, x.Ticket)
	same(v.w, "the token of the re-entry", x.Token, c.Ballot)
	return x
}
