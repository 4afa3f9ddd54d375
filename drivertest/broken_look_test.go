package drivertest

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
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
	{"owners are not shown", "LinesShowTheHolder OwnerAndNoteAreKept LinesShowClaimsInOrder " + modelTest,
		func(b *broken) { b.shows(func(s *driver.Standing) { s.Owner, s.Note = "", "" }) }},
	{"ids are shown in full", "IdsAreCut",
		func(b *broken) {
			b.shows(func(s *driver.Standing) {
				if t, ok := b.find(func(t driver.Ticket) bool { return driver.ShortID(t.ID) == s.ID }); ok {
					s.ID = t.ID
				}
			})
		}},
	{"the line is shown backwards", "LinesShowClaimsInOrder TokensRiseAlongTheLine " + modelTest,
		func(b *broken) {
			b.edit(func(l driver.Line) driver.Line {
				slices.Reverse(l.Claims)
				return l
			})
		}},
	{"since is the arrival", "SinceIsTheGrant",
		func(b *broken) {
			arrived := map[string]time.Time{}
			b.changed(func(c driver.Claim, t *driver.Ticket) { arrived[driver.ShortID(c.ID)] = time.Now() })
			b.shows(func(s *driver.Standing) { s.Since = arrived[s.ID] })
		}},
	{"lingering is not shown", "LingerIsSeen " + modelTest,
		func(b *broken) { b.shows(func(s *driver.Standing) { s.Lingering = false }) }},
	{"a page of lines is lost", "LinesYieldEachLineOnce EveryByteMayOccur",
		func(b *broken) {
			b.edit(func(l driver.Line) driver.Line { return l })
			lines := b.lines
			b.lines = func(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
				return func(yield func(driver.Line, error) bool) {
					n := 0
					for l, err := range lines(ctx, prefix) {
						if n++; n != 100 && !yield(l, err) {
							return
						}
					}
				}
			}
		}},
	{"lines are yielded twice", "LinesYieldEachLineOnce EveryByteMayOccur LinesTakesPrefixesAsBytes",
		func(b *broken) {
			b.lines = func(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
				return func(yield func(driver.Line, error) bool) {
					for l, err := range b.Store.Lines(ctx, prefix) {
						for range 2 {
							if !yield(l, err) {
								return
							}
						}
					}
				}
			}
		}},
	{"prefixes are patterns", "LinesTakesPrefixesAsBytes",
		func(b *broken) {
			b.lines = func(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
				before, _, _ := strings.Cut(prefix, "%")
				return b.Store.Lines(ctx, before)
			}
		}},
	{"empty lines are listed", "Hygiene",
		func(b *broken) {
			b.lines = func(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
				return func(yield func(driver.Line, error) bool) {
					if t, ok := b.find(func(t driver.Ticket) bool { return strings.HasPrefix(t.Key, prefix) }); ok {
						l, err := b.Store.Line(ctx, t.Key)
						if len(l.Claims) == 0 && !yield(l, err) {
							return
						}
					}
					b.Store.Lines(ctx, prefix)(yield)
				}
			}
		}},
	{"a look that is left early jams", "LinesMayBeLeftEarly",
		func(b *broken) {
			b.lines = func(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
				return func(yield func(driver.Line, error) bool) {
					if b.count("cursors", 0) > 10 {
						yield(driver.Line{}, errors.New("too many cursors"))
						return
					}
					for l, err := range b.Store.Lines(ctx, prefix) {
						if !yield(l, err) {
							b.count("cursors", 1)
							return
						}
					}
				}
			}
		}},
	{"a line alone shows no claims", "OneLineIsTheSameAsInLines",
		func(b *broken) {
			b.line = func(ctx context.Context, key string) (driver.Line, error) {
				l, err := b.Store.Line(ctx, key)
				l.Claims = nil
				return l, err
			}
		}},
	{"an empty line shows nothing", "EmptyLineRemembersItsMark",
		func(b *broken) {
			b.line = func(ctx context.Context, key string) (driver.Line, error) {
				l, err := b.Store.Line(ctx, key)
				if len(l.Claims) == 0 {
					return driver.Line{Key: key}, err
				}
				return l, err
			}
		}},
	{"Lines hides the mark", "LineShowsTheMark " + modelTest,
		func(b *broken) {
			b.edit(func(l driver.Line) driver.Line {
				l.Mark = ""
				return l
			})
		}},
}

var brokenCloses = []breaker{
	{"Close does nothing", "ClosedBackendSaysSo CloseEndsAwait",
		func(b *broken) {}},
	{"Close ends claims", "CloseLeavesClaimsAlone CloseThatDoesNothingDoesNothing",
		func(b *broken) { b.close = func() error { b.Flush(); return nil } }},
	{"the second Close fails", "CloseMayBeCalledTwice",
		func(b *broken) {
			b.close = func() error {
				if b.count("close", 1) > 1 {
					return driver.ErrClosed
				}
				return nil
			}
		}},
	{"Close closes the other views", "CloseOfOneViewIsNotClosingOthers CloseThatDoesNothingDoesNothing",
		func(b *broken) {
			b.close = func() error { b.count("close", 1); return nil }
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				if b.count("close", 0) > 0 {
					return driver.Ticket{}, driver.ErrClosed
				}
				return b.Store.Enter(ctx, c)
			}
		}},
}
