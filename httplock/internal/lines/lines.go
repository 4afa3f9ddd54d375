// Package lines has what the API and the console say of lines alike.
package lines

import (
	"cmp"
	"slices"
	"strings"

	"github.com/fencelock/fencelock"
)

// ByLongestWaiting compares two lines: the one whose first waiter has waited longer comes
// first, and lines without waiters come last.
func ByLongestWaiting(a, b *fencelock.Line) int {
	_, as := Split(a)
	_, bs := Split(b)
	switch {
	case len(as) > 0 && len(bs) > 0:
		if n := as[0].Since.Compare(bs[0].Since); n != 0 {
			return n
		}
	case len(as)+len(bs) > 0:
		return cmp.Compare(len(bs), len(as))
	}
	return strings.Compare(a.Key, b.Key)
}

// Split returns the holders and the waiters of l.
func Split(l *fencelock.Line) (holders, waiters []fencelock.Standing) {
	n := slices.IndexFunc(l.Claims, func(s fencelock.Standing) bool { return !s.Granted })
	if n < 0 {
		n = len(l.Claims)
	}
	return l.Claims[:n], l.Claims[n:]
}
