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
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads a decimal token. It refuses signs, spaces and everything
// else that MarshalText does not write.
func (t *Token) UnmarshalText(b []byte) error {
	n, err := Parse(string(b))
	if err == nil {
		*t = n
	}
	return err
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
	return []byte(`"` + t.String() + `"`), nil
}

// UnmarshalJSON reads a decimal string. It also reads a whole number.
func (t *Token) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	if n := len(b); n >= 2 && b[0] == '"' && b[n-1] == '"' {
		b = b[1 : n-1]
	}
	return t.UnmarshalText(b)
}

// Value makes a Token a SQL argument: an int64.
func (t Token) Value() (driver.Value, error) { return int64(t), nil }

// Scan reads a token from a SQL column: an integer, or its decimal text.
func (t *Token) Scan(v any) error {
	switch v := v.(type) {
	case int64:
		return t.UnmarshalText(strconv.AppendInt(nil, v, 10))
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
func Parse(s string) (Token, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("fence: %.40q is not a token: want a whole number from 0 to 9223372036854775807", s)
	}
	return Token(n), nil
}
