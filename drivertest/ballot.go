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
	{
		name: "BallotIsTheToken",
		when: ballots,
		why: "a quorum proposes one token to all of its nodes: a node that grants another one leaves it " +
			"without any",
		check: func(w *world) {
			c := w.vote(w.key(), time.Now().UnixMicro()+5)
			c.Span = 100
			t := w.hold(w.a, c)
			if t.Token != c.Ballot {
				w.t.Errorf("the ballot %d was granted as the token %d", c.Ballot, t.Token)
			}
			if s, _ := w.standing(w.b, t); s.Token != c.Ballot || s.Span != c.Span {
				w.t.Errorf("the ballot %d with span %d is shown as %+v", c.Ballot, c.Span, s)
			}
			w.leave(w.a, t, driver.Exit{})
			next := w.hold(w.b, w.claim(c.Key))
			if next.Token < c.Ballot+c.Span {
				w.t.Errorf("a claim without a ballot got token %d after %d with a span of %d", next.Token, c.Ballot, c.Span)
			}
		},
	},
	{
		name: "BallotMustBeAboveTheFloor",
		when: ballots,
		why: "two majorities share a node: that its later grant has the larger ballot is all that makes a " +
			"quorum's tokens unique and rising",
		check: func(w *world) {
			first := w.voter(w.key())
			first.Span = 100
			w.leave(w.a, w.hold(w.a, first), driver.Exit{})
			for _, b := range []int64{first.Ballot - 1, first.Ballot, first.Ballot + 1, first.Ballot + 99} {
				if last := w.outvoted(w.b, w.vote(first.Key, b)); last < first.Ballot+99 {
					w.t.Errorf("the answer says %d after the ballot %d with a span of 100", last, first.Ballot)
				}
			}
			last := w.outvoted(w.b, w.vote(first.Key, first.Ballot))
			if t := w.hold(w.b, w.vote(first.Key, last+1)); t.Token != last+1 {
				w.t.Errorf("the ballot %d, one above what the node said, was granted as %d", last+1, t.Token)
			}
		},
	},
	{
		name: "BallotMustNotBeFarBelowTheClock",
		when: ballots,
		why: "a node that was wiped has no memory of the key: that it grants nothing below its clock is what " +
			"stands for what it has forgotten",
		check: func(w *world) {
			key := w.key()
			for _, b := range []int64{1, time.Now().Add(-beyond).UnixMicro()} {
				if last := w.outvoted(w.a, w.vote(key, b)); last < b {
					w.t.Errorf("the ballot %d was refused with %d, which is below it", b, last)
				}
			}
			w.hold(w.b, w.voter(key))
		},
	},
	{
		name: "BallotMustNotBeFarAhead",
		when: ballots,
		why: "a client an hour ahead would raise tokens that a node forgets when it is wiped: afterwards " +
			"smaller ones would pass",
		check: func(w *world) {
			key := w.key()
			for _, b := range []int64{time.Now().Add(beyond + time.Minute).UnixMicro(), 1 << 62} {
				if last := w.outvoted(w.a, w.vote(key, b)); last >= b {
					w.t.Errorf("the ballot %d was refused with %d", b, last)
				}
			}
			w.hold(w.b, w.voter(key)) // and nothing was raised
		},
	},
	{
		name: "BallotsDoNotClimb",
		when: ballots,
		why: "clients whose clocks are further and further ahead would climb on one another's ballots, to " +
			"where a wiped node's clock does not reach",
		check: func(w *world) {
			key, start := w.key(), time.Now()
			for ahead := time.Duration(0); ahead < beyond+time.Minute; ahead += 30 * time.Second {
				t, err := w.try(w.a, w.vote(key, start.Add(ahead).UnixMicro()))
				switch {
				case err == nil && ahead > beyond:
					w.t.Errorf("a ballot %v ahead of the clock was granted, with the help of those before it", ahead)
				case err == nil:
					w.leave(w.a, t, driver.Exit{})
				case !errors.As(err, new(driver.ErrBallot)):
					w.t.Fatalf("a ballot %v ahead of the clock answered %v", ahead, err)
				}
			}
		},
	},
	{
		name: "RefusedBallotLeavesNothing",
		when: ballots,
		why:  "the same claim comes again with a larger ballot: nothing of the first may stand in its way",
		check: func(w *world) {
			key := w.key()
			c := w.vote(key, 1)
			c.Ballot = w.outvoted(w.a, c) + 1
			w.empty(w.b, key)
			t := w.hold(w.a, c)
			w.leave(w.a, t, driver.Exit{})
			w.empty(w.b, key)
		},
	},
	{
		name: "IdComesBeforeBallot",
		when: ballots,
		why: "an Enter whose answer was lost is sent again: judged by its ballot, which its own first grant " +
			"has used up, the claim would be lost",
		check: func(w *world) {
			c := w.voter(w.key())
			first := w.hold(w.a, c)
			for _, b := range []int64{c.Ballot, 1, c.Ballot + 1, 1 << 62} {
				again := c
				again.Ballot = b
				if t := w.hold(w.a, again); t.Token != first.Token {
					w.t.Errorf("the repeated Enter with ballot %d has token %d; want its own, %d", b, t.Token, first.Token)
				}
			}
		},
	},
	{
		name: "OthersComeBeforeBallot",
		when: ballots,
		why: "a taken lock is taken whatever the ballot: ErrBallot would send the client to ask again at once, " +
			"and a waiting line would never be seen",
		check: func(w *world) {
			first := w.hold(w.a, w.voter(w.key()))
			for _, b := range []int64{1, first.Token + 1, 1 << 62} {
				if busy := w.refused(w.b, w.vote(first.Key, b)); busy.Token != first.Token {
					w.t.Errorf("refused with token %d; want that of the holder, %d", busy.Token, first.Token)
				}
			}
			rests := w.vote(w.key(), 1)
			w.gone("Leave of a claim that has not arrived", w.a.Leave(w.ctx, driver.Ticket{Claim: rests}, driver.Exit{}))
			_, err := w.try(w.a, rests)
			w.gone("the delayed Enter", err)
		},
	},
	{
		name: "BallotsOfReadersRise",
		when: ballots,
		why: "readers and writers have one floor: a reader that left it alone would let a writer have an old " +
			"token",
		check: func(w *world) {
			first := w.voter(w.key())
			first.Weight = 1
			w.hold(w.a, first)
			second := w.vote(first.Key, first.Ballot)
			second.Weight = 1
			second.Ballot = w.outvoted(w.b, second) + 1
			if t := w.hold(w.b, second); t.Token != second.Ballot {
				w.t.Errorf("the ballot %d was granted as %d", second.Ballot, t.Token)
			}
		},
	},
	{
		name: "FloorOutlivesClaims",
		when: ballots,
		why:  "a claim that was broken, or has expired, may still be writing with its token",
		check: func(w *world) {
			c := w.voter(w.key())
			c.Span = 100
			t := w.hold(w.a, c)
			if err := w.b.Break(w.ctx, c.Key, t.Token, "over"); err != nil {
				w.t.Fatalf("Break: %v", err)
			}
			w.outvoted(w.b, w.vote(c.Key, c.Ballot+99))
			w.timed(func(r *round) {
				c := r.voter(r.key())
				c.TTL, c.Span = r.lease, driver.MaxSpan
				view := r.open()
				i := clock(func() { r.hold(view, c) })
				r.crash(view)
				r.until(r.over(i, c.TTL))
				r.outvoted(r.b, r.vote(c.Key, c.Ballot))
			})
		},
	},
	{
		name: "OneOfEqualBallotsWins",
		when: ballots,
		why:  "two clients may propose the same ballot in the same microsecond: the node is what tells them apart",
		check: func(w *world) {
			for range races / 4 {
				key, b := w.key(), time.Now().UnixMicro()
				var won atomic.Int32
				w.each(senders, func(i int) {
					c := w.vote(key, b)
					c.Weight = 1 // readers would share, were it not for the ballot
					t, err := w.try([]driver.Backend{w.a, w.b}[i%2], c)
					switch {
					case err == nil && t.Granted && t.Token == b:
						won.Add(1)
					case !errors.As(err, new(driver.ErrBallot)):
						w.t.Errorf("an equal ballot was answered with token %d and error %v", t.Token, err)
					}
				})
				if n := won.Load(); n != 1 {
					w.t.Errorf("%d of %d equal ballots were granted; want 1", n, senders)
				}
			}
		},
	},
	{
		name: "LostClaimReenters",
		when: ballots,
		why: "in the course of a long hold nodes restart one by one: unless the claim comes back to each, it " +
			"is lost in the end though no majority ever was",
		check: func(w *world) {
			w.timed(func(r *round) {
				c := r.voter(r.key())
				c.TTL = r.lease
				i := clock(func() { r.hold(r.a, c) })
				r.until(r.over(i, c.TTL))
				c.TTL = r.claim(c.Key).TTL
				if t := r.back(r.a, c); t.Token != c.Ballot {
					r.t.Errorf("the claim with ballot %d re-entered as %d", c.Ballot, t.Token)
				}
				r.refused(r.b, r.voter(c.Key))
			})
			// Nothing is known of this key, and the claim is older than any ballot may be.
			old := w.vote(w.key(), time.Now().Add(-2*beyond).UnixMicro())
			w.outvoted(w.a, old)
			t := w.back(w.a, old)
			if again := w.back(w.a, old); again.Token != old.Ballot || t.Token != old.Ballot {
				w.t.Errorf("the claim with ballot %d re-entered as %d, and again as %d", old.Ballot, t.Token, again.Token)
			}
			w.leave(w.a, t, driver.Exit{})
			w.outvoted(w.b, w.vote(old.Key, time.Now().Add(-beyond).UnixMicro())) // the floor was not lowered
		},
	},
	{
		name: "ReentryDisturbsNobody",
		when: ballots,
		why:  "a re-entry may arrive late, when the claim is over and others have come: it must find the door shut",
		check: func(w *world) {
			old := w.voter(w.key())
			w.leave(w.a, w.hold(w.a, old), driver.Exit{})
			next := w.hold(w.b, w.vote(old.Key, old.Ballot+1))
			var busy *driver.BusyError
			if _, err := w.reenter(w.a, old); !errors.As(err, &busy) {
				w.t.Errorf("a re-entry while another holds answered %v; want a *BusyError", err)
			}
			w.leave(w.b, next, driver.Exit{})
			if _, err := w.reenter(w.a, old); !errors.As(err, new(driver.ErrBallot)) {
				w.t.Errorf("a re-entry below a later token answered %v; want ErrBallot", err)
			}
			w.outvoted(w.b, w.vote(old.Key, next.Token))

			rests := w.voter(w.key())
			w.gone("Leave of a claim that has not arrived", w.a.Leave(w.ctx, driver.Ticket{Claim: rests}, driver.Exit{}))
			_, err := w.reenter(w.a, rests)
			w.gone("a re-entry that was laid to rest", err)

			broken := w.voter(w.key())
			w.hold(w.a, broken)
			if err := w.b.Break(w.ctx, broken.Key, broken.Ballot, "enough"); err != nil {
				w.t.Fatalf("Break: %v", err)
			}
			_, err = w.reenter(w.a, broken)
			if g := w.gone("a re-entry that was broken", err); !g.Broken || g.Reason != "enough" {
				w.t.Errorf("a re-entry that was broken answered %+v", g)
			}
		},
	},
	{
		name: "EqualBallotReentersAlone",
		when: ballots,
		why: "a reader comes back with the last token that was drawn: beside another reader that token may be " +
			"the other one's",
		check: func(w *world) {
			first := w.voter(w.key())
			first.Weight = 1
			w.hold(w.a, first)
			other := w.vote(first.Key, first.Ballot)
			other.Weight = 1
			if _, err := w.reenter(w.b, other); !errors.As(err, new(driver.ErrBallot)) {
				w.t.Errorf("a re-entry with the token of a reader in line answered %v; want ErrBallot", err)
			}
		},
	},
	{
		name: "InitialiseForgetsNothing",
		when: ballots,
		why:  "an operator may run it twice, or on a node that is at work",
		check: func(w *world) {
			held := w.hold(w.a, w.voter(w.key()))
			c := w.voter(w.key())
			w.leave(w.a, w.hold(w.a, c), driver.Exit{})
			if err := w.b.(driver.Member).Initialise(w.ctx); err != nil {
				w.t.Fatalf("Initialise: %v", err)
			}
			w.stillHolds(w.b, held)
			w.refused(w.b, w.voter(held.Key))
			w.outvoted(w.b, w.vote(c.Key, c.Ballot))
			w.hold(w.b, w.vote(c.Key, c.Ballot+1))
		},
	},
	{
		name: "NewStoreIsInQuarantine",
		when: ballots,
		with: func(c config) bool { return c.fresh != nil },
		why: "a store that knows nothing may have granted a lock a moment before it lost its data: let back at " +
			"once, it would grant that lock again",
		check: func(w *world) {
			b := w.conf.fresh()
			for _, enter := range []func() (driver.Ticket, error){
				func() (driver.Ticket, error) { return b.Enter(w.ctx, w.voter(w.key())) },
				func() (driver.Ticket, error) { return w.reenter(b, w.voter(w.key())) },
				func() (driver.Ticket, error) { return b.Enter(w.ctx, w.vote(w.key(), 1)) },
			} {
				t, err := enter()
				var q *driver.QuarantineError
				if !errors.As(err, &q) {
					w.t.Fatalf("a new store answered a ballot with token %d and error %v; want a *QuarantineError", t.Token, err)
				}
				if q.Left <= 0 || q.Left > b.Info().MaxTTL {
					w.t.Errorf("a quarantine of %v is said to last %v", b.Info().MaxTTL, q.Left)
				}
			}
			if err := b.(driver.Member).Initialise(w.ctx); err != nil {
				w.t.Fatalf("Initialise: %v", err)
			}
			w.leave(b, w.hold(b, w.voter(w.key())), driver.Exit{})
		},
	},
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
func (w *world) outvoted(b driver.Backend, c driver.Claim) int64 {
	w.t.Helper()
	t, err := w.try(b, c)
	var floor driver.ErrBallot
	if !errors.As(err, &floor) {
		w.t.Fatalf("Enter on %q with ballot %d answered token %d and error %v; want ErrBallot", c.Key, c.Ballot, t.Token, err)
	}
	return floor.Last
}

// reenter sends Reenter, and remembers the claim whatever the answer is.
func (w *world) reenter(b driver.Backend, c driver.Claim) (driver.Ticket, error) {
	t, err := b.(driver.Member).Reenter(w.ctx, c)
	kept := t
	if err != nil {
		kept = driver.Ticket{Claim: c}
	}
	w.mu.Lock()
	w.placed = append(w.placed, placed{b, kept})
	w.mu.Unlock()
	return t, err
}

// back sends a Reenter that must be granted.
func (w *world) back(b driver.Backend, c driver.Claim) driver.Ticket {
	w.t.Helper()
	t, err := w.reenter(b, c)
	if err != nil || !t.Granted {
		w.t.Fatalf("Reenter on %q with ballot %d answered granted %v and error %v", c.Key, c.Ballot, t.Granted, err)
	}
	w.sound(c, t)
	return t
}
