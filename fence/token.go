package fence

import (
	"database/sql/driver"
	"fmt"
	"strconv"
)

// Token orders the exclusive grants of one key: every grant carries a larger
// token than all grants of that key before it. Tokens of readers and of
// semaphore holders share their line with others and order nothing: do not give
// them to a guard.
//
// A Token is never negative, and zero means "no token". It may exceed 2^53, so
// it must not pass through a float: it is a decimal string in JSON and as text,
// and an int64 as a SQL argument.
type Token int64

// String returns the token in decimal.
func (t Token) String() string { return strconv.FormatInt(int64(t), 10) }

// MarshalText returns the token in decimal.
func (t Token) MarshalText() ([]byte, error) {
	return strconv.AppendInt(nil, int64(t), 10), nil
}

// UnmarshalText reads a decimal token. It refuses signs, spaces and everything
// else that MarshalText does not write.
func (t *Token) UnmarshalText(b []byte) error {
	n, err := parse(string(b))
	if err != nil {
		return err
	}
	*t = n
	return nil
}

// MarshalBinary returns the token in decimal, which is how a Redis client sends
// an argument: Redis and Lua compare such strings exactly, by length and then
// byte by byte, where a number would lose its last digits above 2^53.
func (t Token) MarshalBinary() ([]byte, error) { return t.MarshalText() }

// UnmarshalBinary reads what MarshalBinary wrote.
func (t *Token) UnmarshalBinary(b []byte) error { return t.UnmarshalText(b) }

// MarshalJSON returns the token as a decimal string in quotes, because many
// JSON readers (jq and JavaScript among them) round numbers above 2^53.
func (t Token) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, 22), '"')
	b = strconv.AppendInt(b, int64(t), 10)
	return append(b, '"'), nil
}

// UnmarshalJSON reads a decimal string, or a whole number written by somebody
// who did not know better.
func (t *Token) UnmarshalJSON(b []byte) error {
	s := string(b)
	if s == "null" {
		return nil
	}
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	n, err := parse(s)
	if err != nil {
		return err
	}
	*t = n
	return nil
}

// Value makes a Token a SQL argument: an int64.
func (t Token) Value() (driver.Value, error) { return int64(t), nil }

// Scan reads a token from a SQL column: an integer, or its decimal text.
func (t *Token) Scan(v any) error {
	switch v := v.(type) {
	case int64:
		if v < 0 {
			return fmt.Errorf("fence: token %d is negative", v)
		}
		*t = Token(v)
		return nil
	case []byte:
		return t.UnmarshalText(v)
	case string:
		return t.UnmarshalText([]byte(v))
	case nil:
		*t = 0
		return nil
	}
	return fmt.Errorf("fence: cannot read a token from %v; want an integer, or its decimal text", v)
}

// Parse reads a decimal token, as printed by String.
func Parse(s string) (Token, error) { return parse(s) }

func parse(s string) (Token, error) {
	if s == "" || s[0] < '0' || s[0] > '9' || s[0] == '0' && len(s) > 1 {
		return 0, fmt.Errorf("fence: %q is not a token: want a whole number such as 1795211231000001", s)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("fence: %q is not a token: want a whole number up to 9223372036854775807", s)
	}
	return Token(n), nil
}
