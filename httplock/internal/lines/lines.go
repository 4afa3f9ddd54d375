// Package lines has what the API and the console say of lines alike.
package lines

import (
	"cmp"
	"strings"

	"github.com/fencelock/fencelock"
)

// ByLongestWaiting compares two lines: the one whose first waiter has waited longer comes
// first, and lines without waiters come last.
func ByLongestWaiting(a, b *fencelock.Line) int {
	switch {
	case len(a.Waiters) > 0 && len(b.Waiters) > 0:
		if n := a.Waiters[0].Since.Compare(b.Waiters[0].Since); n != 0 {
			return n
		}
	case len(a.Waiters)+len(b.Waiters) > 0:
		return cmp.Compare(len(b.Waiters), len(a.Waiters))
	}
	return strings.Compare(a.Key, b.Key)
}
