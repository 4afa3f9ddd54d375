package drivertest

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// leaves lets f change what is left with, and the answer.
func (b *broken) leaves(before func(t *driver.Ticket, e *driver.Exit), after func(t driver.Ticket, e driver.Exit, err error) error) {
	b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
		sent, exit := t, e
		if before != nil {
			before(&sent, &exit)
		}
		err := b.Store.Leave(ctx, sent, exit)
		if after != nil && ctx.Err() == nil {
			err = after(t, e, err)
		}
		return err
	}
}

// leaveFor ends the claim of t and leaves a mark or lingers in its place.
func (b *broken) leaveFor(t driver.Ticket, e driver.Exit) {
	c := t.Claim
	c.ID, c.NoWait = newID(), true
	if t, err := b.Store.Enter(context.Background(), c); err == nil {
		b.Store.Leave(context.Background(), t, e)
	}
}

var brokenLeaves = []mutant{
	{
		name: "Leave does nothing",
		laws: "FreeLockIsGrantedAtOnce LeaveFreesTheLock Hygiene WaiterLeaves EmptyLineTakesAnyKind LongestLeaseLasts LinesMayBeLeftEarly " + modelTest,
		wreck: func(b *broken) {
			b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error { return ctx.Err() }
		},
	},
	{
		name: "whoever comes right after a Leave is let in",
		laws: "NobodyOvertakesWhoWaits",
		wreck: func(b *broken) {
			left := ""
			b.leaves(nil, func(t driver.Ticket, _ driver.Exit, err error) error {
				if err == nil {
					left = t.Key
				}
				return err
			})
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				if left == c.Key && c.NoWait {
					left = ""
					return driver.Ticket{Claim: c, Token: 1 << 40, Granted: true, Left: c.TTL}, nil
				}
				return b.Store.Enter(ctx, c)
			}
		},
	},
	{
		name: "Leave is for the key, not for the claim",
		laws: "LeaveNeedsTheId LeaveDoesNotEndTheSuccessor NoResurrectionBesideASuccessor SecondLeaveIsGone " + modelTest,
		wreck: func(b *broken) {
			b.leaves(nil, func(t driver.Ticket, e driver.Exit, err error) error {
				if driver.Gone(err) {
					if s := b.standings(t.Key); len(s) > 0 {
						b.Store.Break(context.Background(), t.Key, s[0].Token, "")
					}
					return nil
				}
				return err
			})
		},
	},
	{
		name: "the short id is enough to leave",
		laws: "LeaveNeedsTheId",
		wreck: func(b *broken) {
			b.leaves(func(t *driver.Ticket, e *driver.Exit) {
				if full, ok := b.find(func(o driver.Ticket) bool { return o.Key == t.Key && strings.HasPrefix(o.ID, t.ID) }); ok {
					t.ID = full.ID
				}
			}, nil)
		},
	},
	{
		name: "only the first in line can leave",
		laws: "HoldersLeaveInAnyOrder WaiterLeaves TombstoneOfAWaiter WakeAllWhenAWaiterGivesUp " + modelTest,
		wreck: func(b *broken) {
			b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
				for i, s := range b.standings(t.Key) {
					if i > 0 && s.ID == driver.ShortID(t.ID) {
						return ctx.Err()
					}
				}
				return b.Store.Leave(ctx, t, e)
			}
		},
	},
	{
		name: "whoever came last takes along who came before",
		laws: "LeaveOfTheLastComerLeavesTheOthers " + modelTest,
		wreck: func(b *broken) {
			b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
				all := b.standings(t.Key)
				if n := len(all); n > 0 && all[n-1].ID == driver.ShortID(t.ID) {
					b.mu.Lock()
					defer b.mu.Unlock()
					for _, s := range b.seen {
						if s.Key == t.Key && s.ID != t.ID {
							b.Store.Leave(ctx, s, driver.Exit{})
						}
					}
				}
				return b.Store.Leave(ctx, t, e)
			}
		},
	},
	{
		name: "who has left may leave again",
		laws: "SecondLeaveIsGone ClaimThatLeftWritesNoMark WaiterWritesNoMark BreakOrLeaveNotBoth StrangerWritesNoMark BrokenClaimWritesNoMark " + modelTest,
		wreck: func(b *broken) {
			b.leaves(nil, func(t driver.Ticket, e driver.Exit, err error) error {
				if driver.Gone(err) {
					return nil
				}
				return err
			})
		},
	},
	{
		name: "no tombstones",
		laws: "Tombstone TombstoneOfAClaimInLine TombstoneOfAWaiter TombstoneLastsOneTTL TombstoneOutlivesTraffic LongestTombstone " +
			"LeaveWithoutTokenEndsEnter " + modelTest,
		wreck: func(b *broken) {
			b.leaves(func(t *driver.Ticket, e *driver.Exit) { t.Token = 1 }, nil)
		},
	},
	{
		name: "a tombstone keeps everybody out",
		laws: "Tombstone TombstoneOutlivesTraffic " + modelTest,
		wreck: func(b *broken) {
			b.leaves(func(t *driver.Ticket, e *driver.Exit) {
				if t.Token == 0 {
					b.count(t.Key, 1)
				}
			}, nil)
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				if b.count(c.Key, 0) > 0 {
					return driver.Ticket{}, driver.ErrGone{}
				}
				return b.Store.Enter(ctx, c)
			}
		},
	},
	{
		name: "tombstones last half a TTL",
		laws: "TombstoneLastsOneTTL " + modelTest,
		wreck: func(b *broken) {
			b.leaves(func(t *driver.Ticket, e *driver.Exit) { t.TTL /= 2 }, nil)
		},
	},
	{
		name: "long tombstones overflow",
		laws: "LongestTombstone",
		wreck: func(b *broken) {
			b.leaves(func(t *driver.Ticket, e *driver.Exit) {
				if t.TTL == b.Info().MaxTTL {
					t.Token = 1
				}
			}, nil)
		},
	},
	{
		name: "tombstones go with the line",
		laws: "TombstoneOutlivesTraffic",
		wreck: func(b *broken) {
			resting := map[string]string{}
			b.leaves(func(t *driver.Ticket, e *driver.Exit) {
				if t.Token == 0 {
					resting[t.Key] = t.ID
				} else {
					delete(resting, t.Key)
				}
				t.Token = 1
			}, nil)
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				if resting[c.Key] == c.ID {
					return driver.Ticket{}, driver.ErrGone{}
				}
				return b.Store.Enter(ctx, c)
			}
		},
	},
	{
		name: "the dead write marks",
		laws: "DeadClaimWritesNoMark BrokenClaimWritesNoMark ClaimThatLeftWritesNoMark StrangerWritesNoMark " + modelTest,
		wreck: func(b *broken) {
			b.leaves(nil, func(t driver.Ticket, e driver.Exit, err error) error {
				if driver.Gone(err) && e.Mark != "" {
					b.leaveFor(t, driver.Exit{Mark: e.Mark})
				}
				return err
			})
		},
	},
	{
		name: "waiters write marks",
		laws: "WaiterWritesNoMark " + modelTest,
		wreck: func(b *broken) {
			marks := map[string]driver.Mark{}
			b.leaves(func(t *driver.Ticket, e *driver.Exit) {
				if now, err := b.look(*t); err == nil && e.Mark != "" && !now.Granted {
					marks[t.Key] = e.Mark
				}
			}, nil)
			b.changed(func(c driver.Claim, t *driver.Ticket) {
				if m := marks[c.Key]; m != "" && t.Granted {
					t.Mark = m
				}
			})
		},
	},
	{
		name: "marks are not handed on",
		laws: "MarkIsHandedOn LaterMarkReplaces MarkIsKeptAsItIs LineShowsTheMark EmptyLineRemembersItsMark LingerWithMark " + modelTest,
		wreck: func(b *broken) {
			b.leaves(func(t *driver.Ticket, e *driver.Exit) { e.Mark = "" }, nil)
		},
	},
	{
		name: "the first mark stays",
		laws: "LaterMarkReplaces RepeatedLeaveOfTheMarksWriterIsNil " + modelTest,
		wreck: func(b *broken) {
			b.leaves(func(t *driver.Ticket, e *driver.Exit) {
				if e.Mark != "" && b.count(t.Key, 1) > 1 {
					e.Mark = ""
				}
			}, nil)
		},
	},
	{
		name: "no mark clears the mark",
		laws: "LaterMarkReplaces MarkIsHandedOn " + modelTest,
		wreck: func(b *broken) {
			b.leaves(func(t *driver.Ticket, e *driver.Exit) {
				if e.Mark == "" {
					e.Mark = "\x00none"
				}
			}, nil)
			b.changed(func(c driver.Claim, t *driver.Ticket) {
				if t.Mark == "\x00none" {
					t.Mark = ""
				}
			})
		},
	},
	{
		name: "who wrote the mark is not remembered",
		laws: "RepeatedLeaveOfTheMarksWriterIsNil LingerWithMark",
		wreck: func(b *broken) {
			b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
				if e.Mark != "" && b.count(t.ID, 1) > 1 {
					return driver.ErrGone{}
				}
				return b.Store.Leave(ctx, t, e)
			}
		},
	},
	{
		name: "marks are trimmed",
		laws: "MarkIsKeptAsItIs",
		wreck: func(b *broken) {
			b.leaves(func(t *driver.Ticket, e *driver.Exit) {
				e.Mark = driver.Mark(strings.TrimSpace(string(e.Mark)))
			}, nil)
		},
	},
	{
		name: "lingering is ignored",
		laws: "LingerKeepsThePlaceTaken LingerOutlastsTheLease LingerEndsByItself LingerIsSeen " + modelTest,
		wreck: func(b *broken) {
			b.leaves(func(t *driver.Ticket, e *driver.Exit) { e.Linger = 0 }, nil)
		},
	},
	{
		name: "who lingers can be renewed",
		laws: "LingeringClaimHasLeft LingerIsSeen " + modelTest,
		wreck: func(b *broken) {
			b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
				if e.Linger > 0 {
					t.TTL = e.Linger
					return b.Store.Renew(ctx, []driver.Ticket{t})[0]
				}
				return b.Store.Leave(ctx, t, e)
			}
		},
	},
	{
		name: "lingering is added to the lease",
		laws: "LingerReplacesTheLease LingerKeepsThePlaceTaken " + modelTest,
		wreck: func(b *broken) {
			b.leaves(func(t *driver.Ticket, e *driver.Exit) {
				if e.Linger > 0 {
					e.Linger += t.TTL
				}
			}, nil)
		},
	},
	{
		name: "lingering ends with the lease",
		laws: "LingerOutlastsTheLease " + modelTest,
		wreck: func(b *broken) {
			b.leaves(func(t *driver.Ticket, e *driver.Exit) { e.Linger = min(e.Linger, t.TTL) }, nil)
		},
	},
	{
		name: "a repeated Leave lingers anew",
		laws: "LingerWithMark",
		wreck: func(b *broken) {
			b.leaves(nil, func(t driver.Ticket, e driver.Exit, err error) error {
				if e.Linger > 0 && b.count(t.ID, 1) > 1 {
					if s := b.standings(t.Key); len(s) > 0 {
						b.Store.Break(context.Background(), t.Key, s[0].Token, "")
						b.leaveFor(t, e)
					}
				}
				return err
			})
		},
	},
	{
		name: "who lingers may enter again",
		laws: "LingeringClaimHasLeft " + modelTest,
		wreck: func(b *broken) {
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				t, err := b.Store.Enter(ctx, c)
				for _, s := range b.standings(c.Key) {
					if driver.Gone(err) && s.Lingering && s.ID == driver.ShortID(c.ID) {
						b.Store.Break(ctx, c.Key, s.Token, "")
						c.ID += "again"
						return b.Store.Enter(ctx, c)
					}
				}
				return t, err
			}
		},
	},
	{
		name: "claims come back a moment later",
		laws: "HygieneAfterExpiry",
		wreck: func(b *broken) {
			b.edit(func(l driver.Line) driver.Line { return l })
			lines := b.lines
			empty := map[string]time.Time{}
			b.lines = func(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
				if since, ok := empty[prefix]; ok && time.Since(since) > 100*time.Millisecond {
					b.leaveFor(driver.Ticket{Claim: driver.Claim{
						Key: prefix, Capacity: 1, Weight: 1, TTL: time.Second, Span: 1,
					}}, driver.Exit{Linger: time.Second})
				} else if !ok && len(b.standings(prefix)) == 0 {
					empty[prefix] = time.Now()
				}
				return lines(ctx, prefix)
			}
		},
	},
}
