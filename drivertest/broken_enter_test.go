package drivertest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// changed lets f change the ticket of each Enter that succeeds.
func (b *broken) changed(f func(c driver.Claim, t *driver.Ticket)) {
	enter := b.enter
	b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
		t, err := enter(ctx, c)
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
		t, err := b.Member.Enter(ctx, sent)
		t.Claim = c
		return t, err
	}
}

// refuses answers err before the Store has looked at anything, if f says so.
func (b *broken) refuses(err error, f func(c driver.Claim) bool) {
	b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
		if f(c) {
			return driver.Ticket{}, err
		}
		return b.Member.Enter(ctx, c)
	}
}

// refusals lets f change each refusal of type E.
func refusals[E error](b *broken, f func(c driver.Claim, refusal E) error) {
	b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
		t, err := b.Member.Enter(ctx, c)
		var refusal E
		if errors.As(err, &refusal) {
			err = f(c, refusal)
		}
		return t, err
	}
}

// claimGranted makes a ticket say that it is granted.
func claimGranted(t *driver.Ticket) { t.Granted, t.Ahead, t.Head = true, 0, nil }

var brokenEnters = []breaker{
	{"free lock is not granted", func(b *broken) {
		b.changed(func(c driver.Claim, t *driver.Ticket) { t.Granted, t.Ahead = false, 1 })
	}, "FreeLockIsGrantedAtOnce NoWaitIsGrantedWhenItFits Model"},
	{"everybody is granted", func(b *broken) {
		b.sends(func(c *driver.Claim) { c.NoWait = false })
		b.changed(func(c driver.Claim, t *driver.Ticket) { claimGranted(t) })
	}, "HolderExcludesOthers SecondWaitsBehindFirst GrantsComeInOrderOfArrival OneInsideAtATime WritersAreAlone " +
		"SemaphoreNeverOverflows OneWinsARace LeaveIfWaitingOrGrantNotBoth NoTrace LargestSemaphore Model"},
	{"readers ignore writers", func(b *broken) {
		b.sends(func(c *driver.Claim) {
			if c.Weight == 1 {
				c.Capacity = driver.RW - 1
				c.Key += "readers"
			}
		})
	}, "ReadersShareAndWritersExclude WritersAreAlone WaitersKindCountsToo ReadersAndWritersAreOneKind Model"},
	{"small claims overtake", func(b *broken) {
		b.changed(func(c driver.Claim, t *driver.Ticket) {
			if b.holdersLeaveRoom(c) {
				claimGranted(t)
			}
		})
	}, "SmallClaimDoesNotOvertakeLargeOne Model"},
	{"claims that do not wait overtake", func(b *broken) {
		b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			t, err := b.Member.Enter(ctx, c)
			var busy *driver.BusyError
			if errors.As(err, &busy) && b.holdersLeaveRoom(c) {
				c.NoWait = false
				t, err = b.Member.Enter(ctx, c)
				claimGranted(&t)
			}
			return t, err
		}
	}, "NoWaitDoesNotOvertakeWaiters Model"},
	{"the last waiter comes first", func(b *broken) {
		b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			last, ok := b.find(func(t driver.Ticket) bool { return t.Key == c.Key })
			if !ok || last.Granted || last.ID == c.ID || b.Member.Leave(ctx, last, driver.Exit{}) != nil {
				return b.Member.Enter(ctx, c)
			}
			t, err := b.Member.Enter(ctx, c)
			b.Member.Enter(ctx, last.Claim)
			return t, err
		}
	}, "GrantsComeInOrderOfArrival LinesShowClaimsInOrder Model"},
	{"WaitTTL is ignored", func(b *broken) {
		b.sends(func(c *driver.Claim) { c.WaitTTL = 0 })
	}, "WaitTTLIsForTheWait"},
	{"WaitTTL is for the grant too", func(b *broken) {
		b.sends(func(c *driver.Claim) { c.TTL = cmp.Or(c.WaitTTL, c.TTL) })
	}, "GrantHasTheLeaseOfItsTicket RepeatedGrantHasTheLeaseOfItsTicket"},
	{"WaitTTL is not in the ticket", func(b *broken) {
		b.changed(func(c driver.Claim, t *driver.Ticket) { t.TTL = c.TTL })
	}, "WaitTTLIsForTheWait"},
	{"WaitTTL is for each repeated Enter", func(b *broken) {
		b.sends(func(c *driver.Claim) {
			if _, again := b.known(c.Key, c.ID); again {
				c.TTL = cmp.Or(c.WaitTTL, c.TTL)
			}
		})
	}, "RepeatedGrantHasTheLeaseOfItsTicket"},
	{"After is ignored", func(b *broken) {
		b.sends(func(c *driver.Claim) { c.After = 0 })
	}, "AfterComesBeforeTheClock"},
	{"After is never below the clock", func(b *broken) {
		b.sends(func(c *driver.Claim) {
			if c.After > 0 {
				c.After = max(c.After, time.Now().UnixMicro())
			}
		})
	}, "AfterComesBeforeTheClock"},
	{"one slot too many", func(b *broken) {
		b.sends(func(c *driver.Claim) {
			if c.Capacity < driver.RW-1 {
				c.Capacity++
			}
		})
	}, "SemaphoreIsFullAtItsSize SemaphoreNeverOverflows WakeAllWhoFit HoldersLeaveInAnyOrder Model"},
	{"one line for all keys", func(b *broken) { b.rename(func(string) string { return "the only one" }) },
		"OtherKeysAreFree KeysAreBytes MarkOfOneKeyIsNotAnothers EveryByteMayOccur"},
	{"keys fold case", func(b *broken) { b.rename(strings.ToLower) },
		"KeysAreBytes LinesTakesPrefixesAsBytes EveryByteMayOccur"},
	{"keys are trimmed", func(b *broken) { b.rename(strings.TrimSpace) }, "KeysAreBytes LinesTakesPrefixesAsBytes"},
	{"keys are text", func(b *broken) { b.rename(func(key string) string { return strings.ToValidUTF8(key, "?") }) },
		"KeysAreBytes EveryByteMayOccur"},
	{"keys end at NUL", func(b *broken) {
		b.rename(func(key string) string { k, _, _ := strings.Cut(key, "\x00"); return k })
	}, "KeysAreBytes"},
	{"long keys are cut", func(b *broken) { b.rename(func(key string) string { return key[:min(len(key), 255)] }) },
		"LongestKey"},
	{"refusal leaves a trace", func(b *broken) {
		refusals(b, func(c driver.Claim, busy *driver.BusyError) error {
			c.NoWait = false
			b.Member.Enter(context.Background(), c)
			return busy
		})
	}, "NoTrace NoWaitDoesNotOvertakeWaiters Model"},
	{"refusal does not say by whom", func(b *broken) {
		refusals(b, func(_ driver.Claim, busy *driver.BusyError) error {
			return &driver.BusyError{Standing: driver.Standing{Left: busy.Left}, Ahead: busy.Ahead}
		})
	}, "NoWaitIsRefusedWithTheHead TextIsKept Model"},
	{"the head is somebody else", func(b *broken) {
		b.changed(func(c driver.Claim, t *driver.Ticket) {
			if t.Head != nil {
				t.Head.Owner, t.Head.Token = c.Owner+"?", t.Token
			}
		})
	}, "SecondWaitsBehindFirst Model"},
	{"grant without waiting is not kept", func(b *broken) {
		b.sends(func(c *driver.Claim) { c.NoWait = true })
		b.changed(func(c driver.Claim, t *driver.Ticket) { b.Member.Leave(context.Background(), *t, driver.Exit{}) })
	}, "NoWaitIsGrantedWhenItFits HolderExcludesOthers OneWinsARace KeysAreBytes"},
	{"repeated Enter makes another claim", func(b *broken) {
		b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			id := c.ID
			if _, ok := b.known(c.Key, c.ID); ok {
				c.ID = newID()
			}
			t, err := b.Member.Enter(ctx, c)
			t.ID = id
			return t, err
		}
	}, "RepeatedEnterFindsItsClaim TokenStaysTheSame OneClaimOfManyRepeats Model"},
	{"repeated Enter goes to the end of the line", func(b *broken) {
		b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			if t, ok := b.known(c.Key, c.ID); ok {
				b.Member.Leave(ctx, t, driver.Exit{})
			}
			return b.Member.Enter(ctx, c)
		}
	}, "RepeatedEnterOfWaiterAnswersItsTicket TokenStaysTheSame Model"},
	{"repeated Enter is refused when it does not wait", func(b *broken) {
		b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			t, err := b.Member.Enter(ctx, c)
			if err == nil && !t.Granted && c.NoWait {
				return t, t.Head
			}
			return t, err
		}
	}, "RepeatedEnterOfWaiterAnswersItsTicket EnterRenewsWaiters Model"},
	{"repeated Enter does not renew", func(b *broken) {
		b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			if t, ok := b.known(c.Key, c.ID); ok {
				if t, err := b.look(t); err == nil {
					t.Left = t.TTL
					return t, nil
				}
			}
			return b.Member.Enter(ctx, c)
		}
	}, "EnterRenews EnterRenewsWaiters Model"},
	{"one id is one claim on all keys", func(b *broken) {
		b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
			for {
				other, ok := b.find(func(o driver.Ticket) bool { return o.ID == t.ID && o.Key != t.Key })
				if !ok || b.Member.Leave(ctx, other, e) != nil {
					break
				}
			}
			return b.Member.Leave(ctx, t, e)
		}
	}, "SameIdOnAnotherKeyIsAnotherClaim"},
	{"all tokens are the same", func(b *broken) {
		b.changed(func(c driver.Claim, t *driver.Ticket) { t.Token = 1 })
		b.brk = func(ctx context.Context, key string, token int64, how driver.Break) error {
			if t, ok := b.find(func(t driver.Ticket) bool { return t.Key == key }); ok {
				s := b.standings(key)
				if len(s) > 0 && s[0].ID == driverutil.ShortID(t.ID) {
					token = s[0].Token
				}
			}
			return b.Member.Break(ctx, key, token, how)
		}
	}, "TokensRiseFromGrantToGrant TokensRiseAlongTheLine SpanIsReserved TokensRiseAfterABrokenClaim " +
		"TokensRiseAfterAnExpiredClaim SpanIsReservedForWaiters Model"},
	{"tokens fall", func(b *broken) {
		fall := func(t *driver.Ticket) { t.Token = 1<<62 - t.Token }
		b.changed(func(c driver.Claim, t *driver.Ticket) { fall(t) })
		b.awaited(fall)
	}, "TokensRiseFromGrantToGrant TokensRiseAlongTheLine OneInsideAtATime Model"},
	{"spans are not reserved", func(b *broken) { b.sends(func(c *driver.Claim) { c.Span = 1 }) },
		"SpanIsReserved SpanIsReservedForWaiters TokensRiseAfterABrokenClaim BreakMatchesTheWholeSpan Model"},
	{"the lease is half of what is said", func(b *broken) {
		b.sends(func(c *driver.Claim) { c.TTL = max(c.TTL/2, 1e6) })
		b.changed(func(c driver.Claim, t *driver.Ticket) { t.Left = c.TTL })
	}, "EnterRenews LeftFromSending GrantedTTLIsKept Model"},
	{"more is left than the lease", func(b *broken) {
		b.changed(func(c driver.Claim, t *driver.Ticket) { t.Left = t.TTL + t.TTL/2 })
	}, "LeftFromSending"},
	{"less is left than the lease", func(b *broken) {
		b.changed(func(c driver.Claim, t *driver.Ticket) { t.Left = t.TTL / 2 })
	}, "LeftFromSending LongestLeaseLasts"},
	{"another lease is granted than is kept", func(b *broken) {
		b.changed(func(c driver.Claim, t *driver.Ticket) { t.TTL *= 3 })
		b.renewsWith(func(t *driver.Ticket) { t.TTL /= 3 })
	}, "GrantedTTLIsKept"},
	{"leases never end", func(b *broken) { b.sends(func(c *driver.Claim) { c.TTL = b.Info().MaxTTL }) },
		"ExpiredClaimIsGone ExpiredIsPurgedByEnter ExpiredHolderLetsWaiterIn ExpiredWaiterLetsOthersIn " +
			"ExpiredWaiterThatRenewedLetsOthersIn " +
			"AwaitDoesNotRenew NoResurrectionAfterExpiry HygieneAfterExpiry BreakOfAnExpiredClaimFindsNobody " +
			"DeadClaimWritesNoMark ExpiredClaimsKindIsForgotten WakeAllAfterExpiry WakeAllAfterAWaitersExpiry " +
			"LeaveDoesNotEndTheSuccessor TokensRiseAfterAnExpiredClaim Model"},
	{"long leases overflow", func(b *broken) {
		b.refuses(errors.New("out of range"), func(c driver.Claim) bool { return c.TTL > b.Info().MaxTTL-1 })
	}, "LongestLeaseLasts ShortestAndLongestLease"},
	{"kinds do not matter", func(b *broken) {
		b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			t, err := b.Member.Enter(ctx, c)
			if errors.Is(err, driver.ErrKind) {
				return driver.Ticket{Claim: c, Token: 1, Granted: true, Left: c.TTL}, nil
			}
			return t, err
		}
	}, "OtherKindIsRefused WaitersKindCountsToo Model"},
	{"readers are a kind of their own", func(b *broken) {
		b.refuses(driver.ErrKind, func(c driver.Claim) bool {
			return slices.ContainsFunc(b.standings(c.Key), func(s driver.Standing) bool {
				return s.Capacity == driver.RW && (s.Weight == driver.RW) != driverutil.Exclusive(&c)
			})
		})
	}, "ReadersAndWritersAreOneKind HolderExcludesOthers Model"},
	{"a key keeps its first kind", func(b *broken) {
		b.refuses(driver.ErrKind, func(c driver.Claim) bool {
			_, other := b.find(func(t driver.Ticket) bool {
				return t.Key == c.Key && t.Capacity != c.Capacity
			})
			return other
		})
	}, "EmptyLineTakesAnyKind ExpiredClaimsKindIsForgotten OtherSizeIsRefused WaitersSizeCountsToo Model"},
	{"sizes do not matter", func(b *broken) {
		b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			t, err := b.Member.Enter(ctx, c)
			if errors.Is(err, driver.ErrKind) && c.Capacity != driver.RW && b.standings(c.Key)[0].Capacity != driver.RW {
				return driver.Ticket{Claim: c, Token: 1, Granted: true, Left: c.TTL}, nil
			}
			return t, err
		}
	}, "OtherSizeIsRefused WaitersSizeCountsToo LingeringClaimKeepsTheSize Model"},
	{"the error does not say the sizes", func(b *broken) {
		b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			t, err := b.Member.Enter(ctx, c)
			if errors.Is(err, driver.ErrKind) {
				err = driver.ErrKind
			}
			return t, err
		}
	}, "OtherKindIsRefused OtherSizeIsRefused"},
	{"sums have 32 bits", func(b *broken) {
		b.changed(func(c driver.Claim, t *driver.Ticket) {
			if b.count(c.Key, int(c.Weight)) >= 1<<31 {
				claimGranted(t)
			}
		})
	}, "HugeSums"},
	{"long text is cut", func(b *broken) {
		b.sends(func(c *driver.Claim) { c.Note = c.Note[:min(len(c.Note), 255)] })
	}, "TextIsKept"},
	{"context is not heeded", func(b *broken) {
		b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			return b.Member.Enter(context.WithoutCancel(ctx), c)
		}
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			for {
				now, err := b.Member.Await(context.WithoutCancel(ctx), t)
				if err != nil || now.Granted || ctx.Err() != nil && b.count("awaits", 1) > 20 {
					return now, err
				}
			}
		}
	}, "EndedContextEndsCalls AwaitEndsWithItsContext"},
	{"one context ends another's call", func(b *broken) {
		b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			if ctx.Err() != nil {
				b.count("cancelled", 1)
			} else if b.count("cancelled", 0) > 0 {
				return driver.Ticket{}, context.Canceled
			}
			return b.Member.Enter(ctx, c)
		}
	}, "OneContextEndsOneCall"},
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
