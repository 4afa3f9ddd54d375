package fence_test

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/fencelock/fencelock/fence"
)

// tokens are usual ones, the neighbours of 2^53, where a float loses a digit, and the largest.
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
		if err := json.Unmarshal([]byte(`{"Token":null}`), &d); err != nil || d.Token != tok {
			t.Errorf("null leaves a value as it is: %v, %v", d.Token, err)
		}
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
