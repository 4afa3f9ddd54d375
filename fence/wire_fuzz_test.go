package fence

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// FuzzToken: what is read as a token is written as it was read, in every form; nothing
// is rounded, nothing has two spellings, and what is refused changes nothing.
func FuzzToken(f *testing.F) {
	for _, s := range []string{
		"0", "1", "00", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "1_0", "9007199254740993", "9223372036854775807", "9223372036854775808",
		"01", "", "null", `"5"`, `"`, `"1`, "\u0661", "\uff11", "1\x00", `"-1"`, `"+1"`, `"1e3"`, `"01"`, `""`, "true",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := Parse(s); err == nil && (n < 0 || n.String() != s) {
			t.Errorf("%q is read as %v", s, n)
		}
		for form, read := range map[string]func(n *Token) error{
			"JSON":    func(n *Token) error { return n.UnmarshalJSON([]byte(s)) },
			"text":    func(n *Token) error { return n.UnmarshalText([]byte(s)) },
			"bytes":   func(n *Token) error { return n.UnmarshalBinary([]byte(s)) },
			"columns": func(n *Token) error { return n.Scan([]byte(s)) },
		} {
			n, want := Token(7), s
			err := read(&n)
			switch {
			case err != nil || form == "JSON" && s == "null":
				want = "7"
			case form == "JSON":
				want = strings.Trim(s, `"`)
			}
			if n.String() != want || n < 0 {
				t.Errorf("%q in %s is read as %v, %v", s, form, n, err)
			}
		}
	})
}

// FuzzRequest: whatever a request says of its token, it is let in only with one that
// can be read and is not below the largest seen.
func FuzzRequest(f *testing.F) {
	for _, h := range []string{"", "7", "6", "5", "07", "007", " 7", "7,7", `"7"`, "7, 8", "7 ", "x", "-7", "9223372036854775808", "\x00", strings.Repeat("9", 5000)} {
		f.Add(h, h == "5")
	}
	f.Fuzz(func(t *testing.T, header string, twice bool) {
		gates := &Gates{}
		steps.Must(t, gates.Do(t.Context(), "r", 6, func(context.Context) error { return nil }))
		in, seen := false, Token(0)
		next := func(_ http.ResponseWriter, r *http.Request) { in, seen = true, TokenFrom(r.Context()) }
		h := Handler(http.HandlerFunc(next), gates, func(*http.Request) string { return "r" }, nil)
		r := httptest.NewRequest("PUT", "/", strings.NewReader("x"))
		r.Header[Header] = []string{header}
		if twice {
			r.Header[Header] = append(r.Header[Header], header)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		token, err := Parse(header)
		want := http.StatusOK
		switch {
		case twice || err != nil || token == 0:
			want = http.StatusBadRequest
		case token < 6:
			want = http.StatusPreconditionFailed
		}
		if w.Code != want || in != (want == http.StatusOK) || in && seen.String() != header {
			t.Errorf("%q, twice %v: answered %d, let in %v; want %d", header, twice, w.Code, in, want)
		}
		if err := CheckResponse(w.Result()); (err == nil) != in || errors.Is(err, ErrStale) != (want == http.StatusPreconditionFailed) {
			t.Errorf("%q: the client is told %v", header, err)
		}
	})
}

// FuzzResponse: the body of any answer can be read afterwards, and is told in one line.
func FuzzResponse(f *testing.F) {
	for _, b := range []string{
		`{"type":"` + problemStale + `","resource":"r","token":"5","seen":"6"}`, `{"type":"` + problemStale + `","token":5,"seen":-6}`,
		`{"type":"` + problemNoToken + `","detail":"no\u001b[2Jtoken\n"}`, "", "{", "null", `{"type":5}`, strings.Repeat("[", 10000),
	} {
		f.Add(412, problemMedia, []byte(b))
		f.Add(428, problemMedia+"; charset=utf-8", []byte(b))
	}
	f.Add(400, "text/html", []byte("<p>"))
	f.Fuzz(func(t *testing.T, status int, media string, body []byte) {
		r := &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {media}}, Body: io.NopCloser(strings.NewReader(string(body)))}
		err := CheckResponse(r)
		if got, failed := io.ReadAll(r.Body); failed != nil || string(got) != string(body) {
			t.Errorf("the body is %q afterwards, %v; it was %q", got, failed, body)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\n\r\x1b\x00") {
			t.Errorf("the error has control characters: %q", err)
		}
		if stale := (*StaleError)(nil); errors.As(err, &stale) && (stale.Token < 0 || stale.Seen < 0) {
			t.Errorf("the error has impossible tokens: %+v", stale)
		}
	})
}
