package fence

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

var (
	// ErrStale says that the write was refused, because the resource has seen a larger token:
	// the lock has passed to another holder. Do not write again with the same token. Take
	// the lock again, and read again what the write was based on.
	ErrStale = errors.New("the fencing token is stale")

	// ErrNoToken says that the write was refused, because it came without a token.
	ErrNoToken = errors.New("there is no fencing token")
)

// StaleError is an ErrStale with the tokens that were compared. A field that a guard
// does not know is empty or zero.
type StaleError struct {
	Resource string
	Token    Token // that came with the write
	Seen     Token // the largest that the resource has seen
}

// Error says what was refused and what to do:
//
//	fence: orders/42: token 7 is stale, 9 was seen: the lock has passed on; take it again before writing
func (e *StaleError) Error() string {
	what, seen := "the token", ""
	if e.Token != 0 {
		what = "token " + e.Token.String()
	}
	if e.Seen != 0 {
		seen = fmt.Sprintf(", %v was seen", e.Seen)
	}
	return fmt.Sprintf("fence: %s%s is stale%s: the lock has passed on; take it again before writing",
		about(e.Resource), what, seen)
}

// Is makes a StaleError match ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// compare is the heart of every guard that compares in Go. The same token again is
// the same holder, who may write many times.
func compare(resource string, given, seen Token) error {
	if given < seen {
		return &StaleError{Resource: resource, Token: given, Seen: seen}
	}
	return nil
}

// need returns an error unless t can be the token of a grant.
func need(resource string, t Token) error {
	if t > 0 {
		return nil
	}
	return fmt.Errorf("fence: %s%w: %d is none; pass the token of the lease under which this is written",
		about(resource), ErrNoToken, int64(t))
}

// about begins what an error says of a resource, if it has a name.
func about(resource string) string {
	if resource == "" {
		return ""
	}
	return printable(resource) + ": "
}

// printable returns a name that another program chose on one line.
func printable(s string) string {
	const most = 200
	cut := ""
	if len(s) > most {
		s, cut = s[:most], "…"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		s = strings.Trim(fmt.Sprintf("%q", s), `"`)
	}
	return s + cut
}
