package drivertest

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// leavesWith lets f change what is left with.
func (b *broken) leavesWith(f func(t *driver.Ticket, e *driver.Exit)) {
	b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
		f(&t, &e)
		return b.Member.Leave(ctx, t, e)
	}
}

// left lets f change the answer.
func (b *broken) left(f func(t driver.Ticket, e driver.Exit, err error) error) {
	b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
		err := b.Member.Leave(ctx, t, e)
		if ctx.Err() == nil {
			err = f(t, e, err)
		}
		return err
	}
}

// leaveFor ends the claim of t and leaves a mark or lingers in its place.
func (b *broken) leaveFor(t driver.Ticket, e driver.Exit) {
	c := t.Claim
	c.ID, c.NoWait = newID(), true
	if t, err := b.Member.Enter(context.Background(), c); err == nil {
		b.Member.Leave(context.Background(), t, e)
	}
}

var brokenLeaves = []breaker{
	{"Leave does nothing", func(b *broken) {
		b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error { return ctx.Err() }
	}, "FreeLockIsGrantedAtOnce LeaveFreesTheLock Hygiene WaiterLeaves EmptyLineTakesAnyKind LongestLeaseLasts " +
		"LinesMayBeLeftEarly Model"},
	{"a wait that is over ends whatever it finds", func(b *broken) {
		b.leavesWith(func(t *driver.Ticket, e *driver.Exit) { e.IfWaiting = false })
	}, "LeaveIfWaiting LeaveIfWaitingOfAWaiter LeaveIfWaitingOnASemaphore NamedGrantOutlivesAnotherWait " +
		"LeaveIfWaitingOrGrantNotBoth Model"},
	{"a wait that is over looks first, and then leaves", func(b *broken) {
		b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
			for _, s := range b.standings(t.Key) {
				if e.IfWaiting && s.Granted && s.ID == driverutil.ShortID(t.ID) {
					return driver.ErrGranted
				}
			}
			if e.IfWaiting {
				<-time.After(time.Microsecond) // while the holder leaves
			}
			e.IfWaiting = false
			return b.Member.Leave(ctx, t, e)
		}
	}, "LeaveIfWaitingOrGrantNotBoth"},
	{"a wait that is over keeps a grant, and keeps its repeats out", func(b *broken) {
		b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
			if e.IfWaiting && e.Tombstone {
				b.count(t.ID, 1)
			}
			return b.Member.Leave(ctx, t, e)
		}
		b.refuses(driver.GoneError{}, func(c driver.Claim) bool { return b.count(c.ID, 0) > 0 })
	}, "LeaveIfWaiting Model"},
	{"whoever comes right after a Leave is let in", func(b *broken) {
		left := ""
		b.left(func(t driver.Ticket, _ driver.Exit, err error) error {
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
			return b.Member.Enter(ctx, c)
		}
	}, "NobodyOvertakesWhoWaits"},
	{"Leave is for the key, not for the claim", func(b *broken) {
		b.left(func(t driver.Ticket, e driver.Exit, err error) error {
			if !driver.Gone(err) {
				return err
			}
			if s := b.standings(t.Key); len(s) > 0 {
				b.Member.Break(context.Background(), t.Key, s[0].Token, driver.Break{})
			}
			return nil
		})
	}, "LeaveNeedsTheId LeaveDoesNotEndTheSuccessor NoResurrectionBesideASuccessor SecondLeaveIsGone Model"},
	{"the short id is enough to leave", func(b *broken) {
		b.leavesWith(func(t *driver.Ticket, e *driver.Exit) {
			if full, ok := b.find(func(o driver.Ticket) bool { return o.Key == t.Key && strings.HasPrefix(o.ID, t.ID) }); ok {
				t.ID = full.ID
			}
		})
	}, "LeaveNeedsTheId"},
	{"only the first in line can leave", func(b *broken) {
		b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
			for i, s := range b.standings(t.Key) {
				if i > 0 && s.ID == driverutil.ShortID(t.ID) {
					return ctx.Err()
				}
			}
			return b.Member.Leave(ctx, t, e)
		}
	}, "HoldersLeaveInAnyOrder WaiterLeaves WaitersThatLeaveBlockNobody TombstoneOfAWaiter " +
		"WakeAllWhenAWaiterGivesUp Model"},
	{"whoever came last takes along who came before", func(b *broken) {
		b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
			all := b.standings(t.Key)
			if n := len(all); n > 0 && all[n-1].ID == driverutil.ShortID(t.ID) {
				b.mu.Lock()
				defer b.mu.Unlock()
				for _, s := range b.seen {
					if s.Key == t.Key && s.ID != t.ID {
						b.Member.Leave(ctx, s, driver.Exit{})
					}
				}
			}
			return b.Member.Leave(ctx, t, e)
		}
	}, "LeaveOfTheLastComerLeavesTheOthers Model"},
	{"who has left may leave again", func(b *broken) {
		b.left(func(t driver.Ticket, e driver.Exit, err error) error {
			if driver.Gone(err) {
				return nil
			}
			return err
		})
	}, "SecondLeaveIsGone ClaimThatLeftWritesNoMark WaiterWritesNoMark BreakOrLeaveNotBoth StrangerWritesNoMark " +
		"BrokenClaimWritesNoMark Model"},
	{"no tombstones", func(b *broken) {
		b.leavesWith(func(t *driver.Ticket, e *driver.Exit) { e.Tombstone = false })
	}, "Tombstone TombstoneOfAClaimInLine TombstoneOfAWaiter TombstoneLastsOneTTL TombstoneOutlivesTraffic " +
		"LongestTombstone LeaveWithoutTokenEndsEnter Model"},
	{"a tombstone keeps everybody out", func(b *broken) {
		b.leavesWith(func(t *driver.Ticket, e *driver.Exit) {
			if e.Tombstone {
				b.count(t.Key, 1)
			}
		})
		b.refuses(driver.GoneError{}, func(c driver.Claim) bool { return b.count(c.Key, 0) > 0 })
	}, "Tombstone TombstoneOutlivesTraffic Model"},
	{"tombstones last half a TTL", func(b *broken) {
		b.leavesWith(func(t *driver.Ticket, e *driver.Exit) { t.TTL /= 2 })
	}, "TombstoneLastsOneTTL Model"},
	{"tombstones go with the line", func(b *broken) {
		tombstones := map[string]string{}
		b.leavesWith(func(t *driver.Ticket, e *driver.Exit) {
			if e.Tombstone {
				tombstones[t.Key] = t.ID
			} else {
				delete(tombstones, t.Key)
			}
			e.Tombstone = false
		})
		b.refuses(driver.GoneError{}, func(c driver.Claim) bool { return tombstones[c.Key] == c.ID })
	}, "TombstoneOutlivesTraffic"},
	{"the dead write marks", func(b *broken) {
		b.left(func(t driver.Ticket, e driver.Exit, err error) error {
			if driver.Gone(err) && e.Mark != "" {
				b.leaveFor(t, driver.Exit{Mark: e.Mark})
			}
			return err
		})
	}, "DeadClaimWritesNoMark BrokenClaimWritesNoMark ClaimThatLeftWritesNoMark StrangerWritesNoMark Model"},
	{"waiters write marks", func(b *broken) {
		marks := map[string]string{}
		b.leavesWith(func(t *driver.Ticket, e *driver.Exit) {
			if now, err := b.look(*t); err == nil && e.Mark != "" && !now.Granted {
				marks[t.Key] = e.Mark
			}
		})
		b.changed(func(c driver.Claim, t *driver.Ticket) {
			if m := marks[c.Key]; m != "" && t.Granted {
				t.Mark = m
			}
		})
	}, "WaiterWritesNoMark Model"},
	{"marks are not handed on", func(b *broken) {
		b.leavesWith(func(t *driver.Ticket, e *driver.Exit) { e.Mark = "" })
	}, "MarkIsHandedOn LaterMarkReplaces MarkIsKeptAsItIs LineShowsTheMark EmptyLineRemembersItsMark " +
		"LingerWithMark Model"},
	{"the last mark replaces the line's", func(b *broken) {
		marks := map[string]string{}
		b.left(func(t driver.Ticket, e driver.Exit, err error) error {
			if err == nil && e.Mark != "" {
				b.mu.Lock()
				defer b.mu.Unlock()
				marks[t.Key] = e.Mark
			}
			return err
		})
		b.changed(func(c driver.Claim, t *driver.Ticket) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if m := marks[c.Key]; m != "" && t.Granted {
				t.Mark = m
			}
		})
	}, "MarkNeverMovesBack MarkNeverMovesBackBesideOthers Model"},
	{"the first mark stays", func(b *broken) {
		b.leavesWith(func(t *driver.Ticket, e *driver.Exit) {
			if e.Mark != "" && b.count(t.Key, 1) > 1 {
				e.Mark = ""
			}
		})
	}, "LaterMarkReplaces RepeatedLeaveOfTheMarksWriterIsNil Model"},
	{"no mark clears the mark", func(b *broken) {
		b.leavesWith(func(t *driver.Ticket, e *driver.Exit) {
			if e.Mark == "" {
				e.Mark = "\xffnone"
			}
		})
		b.changed(func(c driver.Claim, t *driver.Ticket) {
			if t.Mark == "\xffnone" {
				t.Mark = ""
			}
		})
	}, "LaterMarkReplaces MarkIsHandedOn Model"},
	{"who wrote the mark is not remembered", func(b *broken) {
		b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
			if e.Mark != "" && b.count(t.ID, 1) > 1 {
				return driver.GoneError{}
			}
			return b.Member.Leave(ctx, t, e)
		}
	}, "RepeatedLeaveOfTheMarksWriterIsNil LingerWithMark"},
	{"marks are trimmed", func(b *broken) {
		b.leavesWith(func(t *driver.Ticket, e *driver.Exit) {
			e.Mark = strings.TrimSpace(e.Mark)
		})
	}, "MarkIsKeptAsItIs"},
	{"lingering is ignored", func(b *broken) {
		b.leavesWith(func(t *driver.Ticket, e *driver.Exit) { e.Linger = 0 })
	}, "LingerKeepsThePlaceTaken LingerOutlastsTheLease LingerEndsByItself LingerIsSeen Model"},
	{"who lingers can be renewed", func(b *broken) {
		b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
			if e.Linger > 0 {
				t.TTL = e.Linger
				return b.Member.Renew(ctx, []driver.Ticket{t})[0]
			}
			return b.Member.Leave(ctx, t, e)
		}
	}, "LingeringClaimHasLeft LingerIsSeen Model"},
	{"lingering is added to the lease", func(b *broken) {
		b.leavesWith(func(t *driver.Ticket, e *driver.Exit) {
			if e.Linger > 0 {
				e.Linger += t.TTL
			}
		})
	}, "LingerReplacesTheLease LingerKeepsThePlaceTaken Model"},
	{"lingering ends with the lease", func(b *broken) {
		b.leavesWith(func(t *driver.Ticket, e *driver.Exit) { e.Linger = min(e.Linger, t.TTL) })
	}, "LingerOutlastsTheLease Model"},
	{"a repeated Leave lingers anew", func(b *broken) {
		b.left(func(t driver.Ticket, e driver.Exit, err error) error {
			if e.Linger > 0 && b.count(t.ID, 1) > 1 {
				if s := b.standings(t.Key); len(s) > 0 {
					b.Member.Break(context.Background(), t.Key, s[0].Token, driver.Break{Delay: -1})
					b.leaveFor(t, e)
				}
			}
			return err
		})
	}, "LingerWithMark"},
	{"claims come back a moment later", func(b *broken) {
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
	}, "HygieneAfterExpiry"},
}
