package drivertest

import (
	"context"
	"errors"
	"strings"

	"github.com/fencelock/fencelock/driver"
)

// changed lets f change the ticket of each Enter that succeeds.
func (b *broken) changed(f func(c driver.Claim, t *driver.Ticket)) {
	b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
		t, err := b.Store.Enter(ctx, c)
		if err == nil {
			f(c, &t)
		}
		return t, err
	}
}

// sends lets f change each claim on its way in; the ticket shows the original.
func (b *broken) sends(f func(c *driver.Claim)) {
	b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
		sent := c
		f(&sent)
		t, err := b.Store.Enter(ctx, sent)
		t.Claim = c
		return t, err
	}
}

// claimGranted makes a ticket say that it is granted.
func claimGranted(t *driver.Ticket) { t.Granted, t.Ahead, t.Head = true, 0, nil }

var brokenEnters = []mutant{
	{
		name: "free lock is not granted",
		laws: "FreeLockIsGrantedAtOnce NoWaitIsGrantedWhenItFits " + modelTest,
		wreck: func(b *broken) {
			b.changed(func(c driver.Claim, t *driver.Ticket) { t.Granted, t.Ahead = false, 1 })
		},
	},
	{
		name: "everybody is granted",
		laws: "HolderExcludesOthers SecondWaitsBehindFirst GrantsComeInOrderOfArrival OneInsideAtATime WritersAreAlone " +
			"SemaphoreNeverOverflows OneWinsARace NoTrace LargestSemaphore " + modelTest,
		wreck: func(b *broken) {
			b.sends(func(c *driver.Claim) { c.NoWait = false })
			enter := b.enter
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				t, err := enter(ctx, c)
				if err == nil {
					claimGranted(&t)
				}
				return t, err
			}
		},
	},
	{
		name: "readers ignore writers",
		laws: "ReadersShareAndWritersExclude WritersAreAlone WaitersKindCountsToo ReadersAndWritersAreOneKind " + modelTest,
		wreck: func(b *broken) {
			b.sends(func(c *driver.Claim) {
				if c.Weight == 1 {
					c.Capacity = driver.RW - 1
					c.Key += "readers"
				}
			})
		},
	},
	{
		name: "small claims overtake",
		laws: "SmallClaimDoesNotOvertakeLargeOne " + modelTest,
		wreck: func(b *broken) {
			b.changed(func(c driver.Claim, t *driver.Ticket) {
				if b.holdersLeaveRoom(c) {
					claimGranted(t)
				}
			})
		},
	},
	{
		name: "claims that do not wait overtake",
		laws: "NoWaitDoesNotOvertakeWaiters " + modelTest,
		wreck: func(b *broken) {
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				t, err := b.Store.Enter(ctx, c)
				var busy *driver.BusyError
				if errors.As(err, &busy) && b.holdersLeaveRoom(c) {
					c.NoWait = false
					t, err = b.Store.Enter(ctx, c)
					claimGranted(&t)
				}
				return t, err
			}
		},
	},
	{
		name: "the last waiter comes first",
		laws: "GrantsComeInOrderOfArrival LinesShowClaimsInOrder " + modelTest,
		wreck: func(b *broken) {
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				last, ok := b.find(func(t driver.Ticket) bool { return t.Key == c.Key })
				if !ok || last.Granted || last.ID == c.ID || b.Store.Leave(ctx, last, driver.Exit{}) != nil {
					return b.Store.Enter(ctx, c)
				}
				t, err := b.Store.Enter(ctx, c)
				b.Store.Enter(ctx, last.Claim)
				return t, err
			}
		},
	},
	{
		name: "one slot too many",
		laws: "SemaphoreIsFullAtItsSize SemaphoreNeverOverflows WakeAllWhoFit HoldersLeaveInAnyOrder " + modelTest,
		wreck: func(b *broken) {
			b.sends(func(c *driver.Claim) {
				if c.Capacity < driver.RW-1 {
					c.Capacity++
				}
			})
		},
	},
	{
		name:  "one line for all keys",
		laws:  "OtherKeysAreFree KeysAreBytes MarkOfOneKeyIsNotAnothers EveryByteMayOccur",
		wreck: func(b *broken) { b.rename(func(string) string { return "the only one" }) },
	},
	{
		name:  "keys fold case",
		laws:  "KeysAreBytes LinesTakesPrefixesAsBytes EveryByteMayOccur",
		wreck: func(b *broken) { b.rename(strings.ToLower) },
	},
	{
		name:  "keys are trimmed",
		laws:  "KeysAreBytes LinesTakesPrefixesAsBytes",
		wreck: func(b *broken) { b.rename(strings.TrimSpace) },
	},
	{
		name:  "keys are text",
		laws:  "KeysAreBytes EveryByteMayOccur",
		wreck: func(b *broken) { b.rename(func(key string) string { return strings.ToValidUTF8(key, "?") }) },
	},
	{
		name:  "keys end at NUL",
		laws:  "KeysAreBytes",
		wreck: func(b *broken) { b.rename(func(key string) string { k, _, _ := strings.Cut(key, "\x00"); return k }) },
	},
	{
		name:  "long keys are cut",
		laws:  "LongestKey",
		wreck: func(b *broken) { b.rename(func(key string) string { return key[:min(len(key), 255)] }) },
	},
	{
		name: "refusal leaves a trace",
		laws: "NoTrace NoWaitDoesNotOvertakeWaiters " + modelTest,
		wreck: func(b *broken) {
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				t, err := b.Store.Enter(ctx, c)
				var busy *driver.BusyError
				if errors.As(err, &busy) {
					c.NoWait = false
					b.Store.Enter(ctx, c)
				}
				return t, err
			}
		},
	},
	{
		name: "refusal does not say by whom",
		laws: "NoWaitIsRefusedWithTheHead OwnerAndNoteAreKept " + modelTest,
		wreck: func(b *broken) {
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				t, err := b.Store.Enter(ctx, c)
				var busy *driver.BusyError
				if errors.As(err, &busy) {
					err = &driver.BusyError{Ahead: busy.Ahead, Left: busy.Left}
				}
				return t, err
			}
		},
	},
	{
		name: "the head is somebody else",
		laws: "SecondWaitsBehindFirst " + modelTest,
		wreck: func(b *broken) {
			b.changed(func(c driver.Claim, t *driver.Ticket) {
				if t.Head != nil {
					t.Head.Owner, t.Head.Token = c.Owner+"?", t.Token
				}
			})
		},
	},
	{
		name: "grant without waiting is not kept",
		laws: "NoWaitIsGrantedWhenItFits HolderExcludesOthers OneWinsARace KeysAreBytes",
		wreck: func(b *broken) {
			b.sends(func(c *driver.Claim) { c.NoWait = true })
			enter := b.enter
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				t, err := enter(ctx, c)
				if err == nil {
					b.Store.Leave(ctx, t, driver.Exit{})
				}
				return t, err
			}
		},
	},
	{
		name: "repeated Enter makes another claim",
		laws: "RepeatedEnterFindsItsClaim TokenStaysTheSame OneClaimOfManyRepeats " + modelTest,
		wreck: func(b *broken) {
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				id := c.ID
				if _, ok := b.known(c.Key, c.ID); ok {
					c.ID = newID()
				}
				t, err := b.Store.Enter(ctx, c)
				t.ID = id
				return t, err
			}
		},
	},
	{
		name: "repeated Enter goes to the end of the line",
		laws: "RepeatedEnterOfWaiterAnswersItsTicket TokenStaysTheSame " + modelTest,
		wreck: func(b *broken) {
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				if t, ok := b.known(c.Key, c.ID); ok {
					b.Store.Leave(ctx, t, driver.Exit{})
				}
				return b.Store.Enter(ctx, c)
			}
		},
	},
	{
		name: "repeated Enter is refused when it does not wait",
		laws: "RepeatedEnterOfWaiterAnswersItsTicket EnterRenewsWaiters " + modelTest,
		wreck: func(b *broken) {
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				t, err := b.Store.Enter(ctx, c)
				if err == nil && !t.Granted && c.NoWait {
					return t, t.Head
				}
				return t, err
			}
		},
	},
	{
		name: "repeated Enter does not renew",
		laws: "EnterRenews EnterRenewsWaiters " + modelTest,
		wreck: func(b *broken) {
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				if t, ok := b.known(c.Key, c.ID); ok {
					if t, err := b.look(t); err == nil {
						t.Left = t.TTL
						return t, nil
					}
				}
				return b.Store.Enter(ctx, c)
			}
		},
	},
	{
		name: "one id is one claim on all keys",
		laws: "SameIdOnAnotherKeyIsAnotherClaim",
		wreck: func(b *broken) {
			b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
				for {
					other, ok := b.find(func(o driver.Ticket) bool { return o.ID == t.ID && o.Key != t.Key })
					if !ok || b.Store.Leave(ctx, other, e) != nil {
						break
					}
				}
				return b.Store.Leave(ctx, t, e)
			}
		},
	},
	{
		name: "all tokens are the same",
		laws: "TokensRiseFromGrantToGrant TokensRiseAlongTheLine SpanIsReserved TokensRiseAfterABrokenClaim " +
			"TokensRiseAfterAnExpiredClaim SpanIsReservedForWaiters " + modelTest,
		wreck: func(b *broken) {
			b.changed(func(c driver.Claim, t *driver.Ticket) { t.Token = 1 })
			b.brk = func(ctx context.Context, key string, token int64, reason string) error {
				if t, ok := b.find(func(t driver.Ticket) bool { return t.Key == key }); ok {
					s := b.standings(key)
					if len(s) > 0 && s[0].ID == driver.ShortID(t.ID) {
						token = s[0].Token
					}
				}
				return b.Store.Break(ctx, key, token, reason)
			}
		},
	},
	{
		name: "tokens fall",
		laws: "TokensRiseFromGrantToGrant TokensRiseAlongTheLine OneInsideAtATime " + modelTest,
		wreck: func(b *broken) {
			fall := func(t *driver.Ticket) { t.Token = 1<<62 - t.Token }
			b.changed(func(c driver.Claim, t *driver.Ticket) { fall(t) })
			b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
				t, err := b.Store.Await(ctx, t)
				fall(&t)
				return t, err
			}
		},
	},
	{
		name:  "spans are not reserved",
		laws:  "SpanIsReserved SpanIsReservedForWaiters TokensRiseAfterABrokenClaim BreakMatchesTheWholeSpan " + modelTest,
		wreck: func(b *broken) { b.sends(func(c *driver.Claim) { c.Span = 1 }) },
	},
	{
		name: "the lease is half of what is said",
		laws: "EnterRenews LeftFromSending GrantedTTLIsKept " + modelTest,
		wreck: func(b *broken) {
			b.sends(func(c *driver.Claim) { c.TTL = max(c.TTL/2, 1e6) })
			enter := b.enter
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				t, err := enter(ctx, c)
				t.Left = c.TTL
				return t, err
			}
		},
	},
	{
		name:  "more is left than the lease",
		laws:  "LeftFromSending",
		wreck: func(b *broken) { b.changed(func(c driver.Claim, t *driver.Ticket) { t.Left = t.TTL + t.TTL/2 }) },
	},
	{
		name:  "less is left than the lease",
		laws:  "LeftFromSending LongestLeaseLasts",
		wreck: func(b *broken) { b.changed(func(c driver.Claim, t *driver.Ticket) { t.Left = t.TTL / 2 }) },
	},
	{
		name: "another lease is granted than is kept",
		laws: "GrantedTTLIsKept",
		wreck: func(b *broken) {
			b.changed(func(c driver.Claim, t *driver.Ticket) { t.TTL *= 3 })
			b.renew = func(ctx context.Context, ts []driver.Ticket) []error {
				shorter := append([]driver.Ticket(nil), ts...)
				for i := range shorter {
					shorter[i].TTL /= 3
				}
				return b.Store.Renew(ctx, shorter)
			}
		},
	},
	{
		name: "leases never end",
		laws: "ExpiredClaimIsGone ExpiredIsPurgedByEnter ExpiredHolderLetsWaiterIn ExpiredWaiterLetsOthersIn AwaitDoesNotRenew " +
			"NoResurrectionAfterExpiry HygieneAfterExpiry BreakOfAnExpiredClaimFindsNobody DeadClaimWritesNoMark " +
			"ExpiredClaimsKindIsForgotten WakeAllAfterExpiry WakeAllAfterAWaitersExpiry LeaveDoesNotEndTheSuccessor " +
			"TokensRiseAfterAnExpiredClaim " + modelTest,
		wreck: func(b *broken) { b.sends(func(c *driver.Claim) { c.TTL = b.Info().MaxTTL }) },
	},
	{
		name: "long leases overflow",
		laws: "LongestLeaseLasts ShortestAndLongestLease",
		wreck: func(b *broken) {
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				if c.TTL > b.Info().MaxTTL-1 {
					return driver.Ticket{}, errors.New("out of range")
				}
				return b.Store.Enter(ctx, c)
			}
		},
	},
	{
		name: "kinds do not matter",
		laws: "OtherKindIsRefused WaitersKindCountsToo " + modelTest,
		wreck: func(b *broken) {
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				t, err := b.Store.Enter(ctx, c)
				if errors.Is(err, driver.ErrKind) {
					return driver.Ticket{Claim: c, Token: 1, Granted: true, Left: c.TTL}, nil
				}
				return t, err
			}
		},
	},
	{
		name: "readers are a kind of their own",
		laws: "ReadersAndWritersAreOneKind HolderExcludesOthers " + modelTest,
		wreck: func(b *broken) {
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				for _, s := range b.standings(c.Key) {
					if s.Capacity == driver.RW && (s.Weight == driver.RW) != c.Exclusive() {
						return driver.Ticket{}, driver.ErrKind
					}
				}
				return b.Store.Enter(ctx, c)
			}
		},
	},
	{
		name: "a key keeps its first kind",
		laws: "EmptyLineTakesAnyKind ExpiredClaimsKindIsForgotten " + modelTest,
		wreck: func(b *broken) {
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				if _, other := b.find(func(t driver.Ticket) bool {
					return t.Key == c.Key && (t.Capacity == driver.RW) != (c.Capacity == driver.RW)
				}); other {
					return driver.Ticket{}, driver.ErrKind
				}
				return b.Store.Enter(ctx, c)
			}
		},
	},
	{
		name: "the first one's size counts for all",
		laws: "TwoSizesAreJudgedEachByItsOwn LargerSizeMayFitBehindAWaiter LargerSizeIsGrantedPastAWaiter " + modelTest,
		wreck: func(b *broken) {
			b.sends(func(c *driver.Claim) {
				if s := b.standings(c.Key); len(s) > 0 && c.Capacity != driver.RW && s[0].Capacity != driver.RW {
					c.Capacity = max(c.Weight, s[0].Capacity)
				}
			})
		},
	},
	{
		name:  "two sizes are not told",
		laws:  "TwoSizesAreJudgedEachByItsOwn LargerSizeMayFitBehindAWaiter " + modelTest,
		wreck: func(b *broken) { b.changed(func(c driver.Claim, t *driver.Ticket) { t.Mixed = false }) },
	},
	{
		name: "sums have 32 bits",
		laws: "HugeSums",
		wreck: func(b *broken) {
			b.changed(func(c driver.Claim, t *driver.Ticket) {
				if b.count(c.Key, int(c.Weight)) >= 1<<31 {
					claimGranted(t)
				}
			})
		},
	},
	{
		name: "long text is cut",
		laws: "OwnerAndNoteAreKept",
		wreck: func(b *broken) {
			b.sends(func(c *driver.Claim) { c.Note = c.Note[:min(len(c.Note), 255)] })
		},
	},
	{
		name: "context is not heeded",
		laws: "EndedContextEndsCalls AwaitEndsWithItsContext",
		wreck: func(b *broken) {
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				return b.Store.Enter(context.WithoutCancel(ctx), c)
			}
			b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
				for {
					now, err := b.Store.Await(context.WithoutCancel(ctx), t)
					if err != nil || now.Granted || ctx.Err() != nil && b.count("awaits", 1) > 20 {
						return now, err
					}
				}
			}
		},
	},
	{
		name: "one context ends another's call",
		laws: "OneContextEndsOneCall",
		wreck: func(b *broken) {
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				if ctx.Err() != nil {
					b.count("cancelled", 1)
				} else if b.count("cancelled", 0) > 0 {
					return driver.Ticket{}, context.Canceled
				}
				return b.Store.Enter(ctx, c)
			}
		},
	},
}

// holdersLeaveRoom reports whether c would fit beside those that hold.
func (b *broken) holdersLeaveRoom(c driver.Claim) bool {
	sum := c.Weight
	for _, s := range b.standings(c.Key) {
		if s.Granted {
			sum += s.Weight
		}
	}
	return sum <= c.Capacity
}
