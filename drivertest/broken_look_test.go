package drivertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/limit"
)

// shows lets f change each claim that Lines shows.
func (b *broken) shows(f func(s *driver.Standing)) {
	b.edit(func(l driver.Line) driver.Line {
		for i := range l.Claims {
			f(&l.Claims[i])
		}
		return l
	})
}

var brokenLooks = []breaker{
	{"owners are not shown", func(b *broken) { b.shows(func(s *driver.Standing) { s.Owner, s.Note = "", "" }) },
		"LinesShowTheHolder TextIsKept LinesShowClaimsInOrder Model"},
	{"traces are not shown", func(b *broken) { b.shows(func(s *driver.Standing) { s.Trace = "" }) },
		"LinesShowTheHolder TextIsKept AdoptedClaimGoesOn"},
	{"lock-delays are not shown", func(b *broken) { b.shows(func(s *driver.Standing) { s.LockDelay = 0 }) },
		"LinesShowTheHolder AdoptedClaimGoesOn"},
	{"the trace is kept behind the note", func(b *broken) {
		b.sends(func(c *driver.Claim) {
			if c.Trace != "" {
				c.Note, c.Trace = c.Note[:min(len(c.Note), limit.Note-1-len(c.Trace))]+"\x1f"+c.Trace, ""
			}
		})
		b.shows(func(s *driver.Standing) { s.Note, s.Trace, _ = strings.Cut(s.Note, "\x1f") })
	}, "TextIsKept NoWaitIsRefusedWithTheHead"},
	{"ids are shown in full", func(b *broken) {
		b.shows(func(s *driver.Standing) {
			if t, ok := b.find(func(t driver.Ticket) bool { return driverutil.ShortID(t.ID) == s.ID }); ok {
				s.ID = t.ID
			}
		})
	}, "IdsAreCut"},
	{"the line is shown backwards", func(b *broken) {
		b.edit(func(l driver.Line) driver.Line {
			slices.Reverse(l.Claims)
			return l
		})
	}, "LinesShowClaimsInOrder TokensRiseAlongTheLine Model"},
	{"since is the arrival", func(b *broken) {
		arrived := map[string]time.Time{}
		b.changed(func(c driver.Claim, t *driver.Ticket) { arrived[driverutil.ShortID(c.ID)] = time.Now() })
		b.shows(func(s *driver.Standing) { s.Since = arrived[s.ID] })
	}, "SinceIsTheGrant"},
	{"lingering is not shown", func(b *broken) { b.shows(func(s *driver.Standing) { s.Lingering = false }) },
		"LingerIsSeen Model"},
	{"a page of lines is lost", func(b *broken) {
		b.lists(func(ctx context.Context, prefix string, yield func(driver.Line, error) bool) {
			n := 0
			b.Member.Lines(ctx, prefix)(func(l driver.Line, err error) bool {
				n++
				return n == 100 || yield(l, err)
			})
		})
	}, "LinesYieldEachLineOnce EveryByteMayOccur"},
	{"lines are yielded twice", func(b *broken) {
		b.lists(func(ctx context.Context, prefix string, yield func(driver.Line, error) bool) {
			for l, err := range b.Member.Lines(ctx, prefix) {
				for range 2 {
					if !yield(l, err) {
						return
					}
				}
			}
		})
	}, "LinesYieldEachLineOnce EveryByteMayOccur LinesTakesPrefixesAsBytes"},
	{"prefixes are patterns", func(b *broken) {
		b.lists(func(ctx context.Context, prefix string, yield func(driver.Line, error) bool) {
			before, _, _ := strings.Cut(prefix, "%")
			b.Member.Lines(ctx, before)(yield)
		})
	}, "LinesTakesPrefixesAsBytes"},
	{"empty lines are listed", func(b *broken) {
		b.lists(func(ctx context.Context, prefix string, yield func(driver.Line, error) bool) {
			if t, ok := b.find(func(t driver.Ticket) bool { return strings.HasPrefix(t.Key, prefix) }); ok {
				l, err := b.Member.Line(ctx, t.Key)
				if len(l.Claims) == 0 && !yield(l, err) {
					return
				}
			}
			b.Member.Lines(ctx, prefix)(yield)
		})
	}, "Hygiene"},
	{"a look that is left early jams", func(b *broken) {
		b.lists(func(ctx context.Context, prefix string, yield func(driver.Line, error) bool) {
			if b.count("cursors", 0) > 10 {
				yield(driver.Line{}, errors.New("too many cursors"))
				return
			}
			for l, err := range b.Member.Lines(ctx, prefix) {
				if !yield(l, err) {
					b.count("cursors", 1)
					return
				}
			}
		})
	}, "LinesMayBeLeftEarly"},
	{"a line alone shows no claims", func(b *broken) {
		b.line = func(ctx context.Context, key string) (driver.Line, error) {
			l, err := b.Member.Line(ctx, key)
			l.Claims = nil
			return l, err
		}
	}, "OneLineIsTheSameAsInLines"},
	{"an empty line shows nothing", func(b *broken) {
		b.line = func(ctx context.Context, key string) (driver.Line, error) {
			l, err := b.Member.Line(ctx, key)
			if len(l.Claims) == 0 {
				return driver.Line{Key: key}, err
			}
			return l, err
		}
	}, "EmptyLineRemembersItsMark"},
	{"Lines hides the mark", func(b *broken) {
		b.edit(func(l driver.Line) driver.Line {
			l.Mark = ""
			return l
		})
	}, "LineShowsTheMark Model"},
}

var brokenCloses = []breaker{
	{"Close does nothing", func(b *broken) {}, "ClosedBackendSaysSo CloseEndsAwait"},
	{"Close ends claims", func(b *broken) { b.close = func() error { b.Flush(); return nil } },
		"CloseLeavesClaimsAlone CloseThatDoesNothingDoesNothing"},
	{"the second Close fails", func(b *broken) {
		b.close = func() error {
			if b.count("close", 1) > 1 {
				return driver.ErrClosed
			}
			return nil
		}
	}, "CloseMayBeCalledTwice"},
	{"Close closes the other views", func(b *broken) {
		b.close = func() error { b.count("close", 1); return nil }
		b.refuses(driver.ErrClosed, func(driver.Claim) bool { return b.count("close", 0) > 0 })
	}, "CloseOfOneViewIsNotClosingOthers CloseThatDoesNothingDoesNothing"},
}
