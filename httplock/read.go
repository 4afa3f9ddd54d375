package httplock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencelock/fencelock/internal/limit"
)

// limitBody bounds how long the body takes to arrive. It is for all requests: net/http reads what
// an endpoint has left of a body. Not every http.ResponseWriter has deadlines; those of net/http
// have.
func (c *call) limitBody() {
	if c.ContentLength != 0 {
		_ = c.out.SetReadDeadline(time.Now().Add(bodyTimeout))
	}
}

// read reads the body of a request into v.
func (c *call) read(v any) error {
	if kind, _, _ := mime.ParseMediaType(c.Header.Get("Content-Type")); kind != "application/json" {
		return invalid("The Content-Type is not application/json.")
	}
	raw, err := io.ReadAll(http.MaxBytesReader(c.w, c.Body, maxBody))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return &problem{slug: slugTooLarge, detail: fmt.Sprintf("The body has more than %d bytes.", maxBody)}
	case err != nil:
		c.w.Header().Set("Connection", "close")
		return invalid("The body did not arrive within %v.", bodyTimeout)
	case !utf8.Valid(raw) || loneSurrogate(raw):
		return invalid("The body is not UTF-8.")
	}
	_ = c.out.SetReadDeadline(time.Time{}) // the answer may take longer
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return invalid("The body cannot be read: %s.", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); err != io.EOF {
		return invalid("There is something behind the JSON object.")
	}
	return nil
}

// surrogate finds escapes of UTF-16, and pairs of escaped backslashes before them.
var surrogate = regexp.MustCompile(
	`\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}`)

// loneSurrogate reports whether JSON has half a pair of surrogates. encoding/json would read
// it as U+FFFD, so that two keys would be one.
func loneSurrogate(raw []byte) bool {
	for _, m := range surrogate.FindAll(raw, -1) {
		if len(m) == len(`\ud800`) {
			return true
		}
	}
	return false
}

// duration is a time as Go writes it: "30s", "5m".
type duration time.Duration

func (d *duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is no duration; want one such as 30s or 5m", b)
	}
	*d = duration(v)
	return nil
}

// checkKey refuses a key that no lock has. longest is its length at most.
func checkKey(key string, longest int) error {
	switch {
	case key == "":
		return invalid("The key is missing.")
	case len(key) > longest:
		return invalid("The key has %d bytes; at most %d.", len(key), longest)
	}
	return nil
}

// queryKey is the key in the query of a GET.
func (c *call) queryKey() (string, error) {
	q := c.URL.Query()
	if err := checkQuery(q, "key"); err != nil {
		return "", err
	}
	key := q.Get("key")
	return key, checkKey(key, limit.Key)
}

// checkQuery refuses parameters that an endpoint does not know.
func checkQuery(q map[string][]string, known ...string) error {
	for name, values := range q {
		found := false
		for _, k := range known {
			found = found || k == name
		}
		if !found || len(values) > 1 {
			return invalid("The parameter %q is not known here, or given twice.", name)
		}
	}
	return nil
}
