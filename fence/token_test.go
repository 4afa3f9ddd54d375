package fence_test

import (
	"database/sql"
	"database/sql/driver"
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/fence"
)

var (
	_ fmt.Stringer               = fence.Token(0)
	_ json.Marshaler             = fence.Token(0)
	_ json.Unmarshaler           = (*fence.Token)(nil)
	_ encoding.TextMarshaler     = fence.Token(0)
	_ encoding.TextUnmarshaler   = (*fence.Token)(nil)
	_ encoding.BinaryMarshaler   = fence.Token(0)
	_ encoding.BinaryUnmarshaler = (*fence.Token)(nil)
	_ driver.Valuer              = fence.Token(0)
	_ sql.Scanner                = (*fence.Token)(nil)
)

// tokens are 0, a usual one, the neighbours of 2^53, where a float loses the last
// digit, and the largest.
var tokens = []fence.Token{0, 1, 1795211231000001, 1<<53 - 1, 1 << 53, 1<<53 + 1, math.MaxInt64 - 1, math.MaxInt64}

func TestTokenIsADecimalStringInJSON(t *testing.T) {
	type doc struct{ Token fence.Token }
	for _, tok := range tokens {
		b, err := json.Marshal(doc{tok})
		if want := fmt.Sprintf(`{"Token":"%d"}`, int64(tok)); err != nil || string(b) != want {
			t.Errorf("got %s, %v, want %s", b, err, want)
		}
		var d doc
		if err := json.Unmarshal(b, &d); err != nil || d.Token != tok {
			t.Errorf("%s became %v, %v", b, d.Token, err)
		}
		// Written by somebody who did not know better.
		if err := json.Unmarshal(fmt.Appendf(nil, `{"Token":%d}`, int64(tok)), &d); err != nil || d.Token != tok {
			t.Errorf("the number %d became %v, %v", tok, d.Token, err)
		}
	}
}

func TestTokenIsAKeyOfAJSONObject(t *testing.T) {
	b, err := json.Marshal(map[fence.Token]int{1<<53 + 1: 1})
	if err != nil || string(b) != `{"9007199254740993":1}` {
		t.Fatalf("got %s, %v", b, err)
	}
	var m map[fence.Token]int
	if err := json.Unmarshal(b, &m); err != nil || m[1<<53+1] != 1 {
		t.Errorf("%v, %v", m, err)
	}
}

func TestJSONThatIsNoTokenIsRefused(t *testing.T) {
	for _, s := range []string{
		`"-1"`, `-1`, `"+1"`, `" 1"`, `"1 "`, `""`, `"`, `1.0`, `1e3`, `"1e3"`, `"0x10"`, `"1_000"`, `"x"`, `{}`, `[1]`, `true`,
		`"9223372036854775808"`, `9223372036854775808`, `"01"`, `"００"`, `"1`, `"1\u0000"`,
	} {
		tok := fence.Token(7)
		if err := tok.UnmarshalJSON([]byte(s)); err == nil {
			t.Errorf("%s was read as %v", s, tok)
		} else if tok != 7 {
			t.Errorf("%s: refused, but changed to %v", s, tok)
		} else if !strings.HasPrefix(err.Error(), "fence: ") {
			t.Errorf("%s: %v", s, err)
		}
	}
	tok := fence.Token(7)
	if err := json.Unmarshal([]byte("null"), &tok); err != nil || tok != 7 {
		t.Errorf("null leaves a value as it is: %v, %v", tok, err)
	}
}

// MarshalText, MarshalBinary, String and Parse are one text: what a Redis client
// sends as an argument is what a person reads in a log.
func TestTokenIsTheSameTextEverywhere(t *testing.T) {
	for _, tok := range tokens {
		want := fmt.Sprint(int64(tok))
		text, err1 := tok.MarshalText()
		bin, err2 := tok.MarshalBinary()
		if string(text) != want || string(bin) != want || tok.String() != want || err1 != nil || err2 != nil {
			t.Errorf("%d: %s, %s, %s", tok, text, bin, tok)
		}
		var a, b fence.Token
		if err := a.UnmarshalText(text); err != nil || a != tok {
			t.Error(a, err)
		}
		if err := b.UnmarshalBinary(bin); err != nil || b != tok {
			t.Error(b, err)
		}
		if p, err := fence.Parse(want); err != nil || p != tok {
			t.Error(p, err)
		}
	}
}

func TestTextThatIsNoTokenIsRefused(t *testing.T) {
	for _, s := range []string{"", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "1_0", "x", "9223372036854775808", "01", "00", "１", "1\x00"} {
		if tok, err := fence.Parse(s); err == nil {
			t.Errorf("%q was read as %v", s, tok)
		}
		tok := fence.Token(7)
		if err := tok.UnmarshalText([]byte(s)); err == nil || tok != 7 {
			t.Errorf("%q: %v, %v", s, tok, err)
		}
		if err := tok.UnmarshalBinary([]byte(s)); err == nil || tok != 7 {
			t.Errorf("%q: %v, %v", s, tok, err)
		}
		if err := tok.Scan(s); err == nil || tok != 7 {
			t.Errorf("%q: %v, %v", s, tok, err)
		}
	}
}

func TestTokenIsAnIntegerInSQL(t *testing.T) {
	for _, tok := range tokens {
		v, err := tok.Value()
		if n, ok := v.(int64); err != nil || !ok || n != int64(tok) || !driver.IsValue(v) {
			t.Errorf("value %T %v, %v", v, v, err)
		}
		for _, in := range []any{int64(tok), tok.String(), []byte(tok.String())} {
			var got fence.Token
			if err := got.Scan(in); err != nil || got != tok {
				t.Errorf("%T %v became %v, %v", in, in, got, err)
			}
		}
	}
	tok := fence.Token(7)
	if err := tok.Scan(nil); err != nil || tok != 0 {
		t.Errorf("NULL is no token: %v, %v", tok, err)
	}
	for _, in := range []any{int64(-1), 1.0, true, []byte("-1"), struct{}{}} {
		tok := fence.Token(7)
		if err := tok.Scan(in); err == nil || tok != 7 {
			t.Errorf("%T %v became %v, %v", in, in, tok, err)
		}
	}
}
