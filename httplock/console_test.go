package httplock_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/httplock"
	"github.com/fencelock/fencelock/internal/testclient"
)

// browser visits the console of a Server, below a prefix.
type browser struct {
	*http.Client
	t    *testing.T
	form string // the token of the forms of the last page
}

const site = "http://localhost:7533/locks/"

func (l *local) browser() *browser {
	mux := http.NewServeMux()
	mux.Handle("/locks/", http.StripPrefix("/locks", l))
	b := &browser{Client: l.dialer(l.listen(&http.Server{Handler: mux}), nil), t: l.T}
	jar, err := cookiejar.New(nil)
	steps.Must(l, err)
	b.Jar = jar
	return b
}

// visit opens a page, or sends a form, and follows where that leads.
func (b *browser) visit(status int, path string, fields ...string) string {
	b.t.Helper()
	form := url.Values{"form": {b.form}}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	send := func() (*http.Response, error) { return b.Get(site + path) }
	if len(fields) > 0 {
		send = func() (*http.Response, error) { return b.PostForm(site+path, form) }
	}
	res, err := send()
	steps.Must(b.t, err)
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	steps.Must(b.t, err)
	if res.StatusCode != status {
		b.t.Errorf("%s: status %d, want %d\n%s", path, res.StatusCode, status, page)
	}
	if m := regexp.MustCompile(`name="form" value="([^"]+)"`).FindSubmatch(page); m != nil {
		b.form = string(m[1])
	}
	return string(page)
}

func TestConsoleAsksForAToken(t *testing.T) {
	inWorld(t, func(w *world) {
		tokens, of := tokensFor(t, "ops look,break ci/", "eyes look *", "ci acquire *")
		var log bytes.Buffer
		s := w.server(&httplock.Options{Tokens: tokens, Audit: slog.New(slog.NewJSONHandler(&log, nil))})
		b := s.browser()
		lease := testclient.Lock(t, s.client, "ci/nightly", fencelock.Owner("alice@a"))
		testclient.Lock(t, s.client, "other", fencelock.Owner("bob@b"))
		if page := b.visit(401, ""); !strings.Contains(page, "Sign in") || strings.Contains(page, "alice") {
			t.Errorf("a visitor that nobody knows sees:\n%s", page)
		}
		b.visit(401, "sign-in", "token", of["ops"]+"x")
		b.visit(401, "sign-in", "token", "a b\r\nc")
		page := b.visit(200, "sign-in", "token", of["ops"])
		if !strings.Contains(page, "Signed in as ops") || !strings.Contains(page, "alice@a") || strings.Contains(page, "bob@b") {
			t.Errorf("ops sees:\n%s", page)
		}
		b.visit(401, "v1/lines") // the API knows no cookies, so a page of another site has nothing to ride on
		to := fmt.Sprint("break?key=ci/nightly&token=", lease.Token())
		b.visit(200, to)
		if page := b.visit(200, to, "reason", "hangs", "confirm", "alice@a"); !strings.Contains(page, "reason: hangs") {
			t.Errorf("the break led to:\n%s", page)
		}
		for _, want := range []string{`"who":"ops"`, `"what":"break","key":"ci/nightly"`, `"result":"ok","reason":"hangs"`} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the audit log lacks %s: %s", want, &log)
			}
		}
		b.visit(403, "break?key=other&token=1")
		b.visit(401, "sign-out", "x", "")
		b.visit(200, "sign-in", "token", of["eyes"])
		b.visit(403, "break?key=other&token=1")
		if page := b.visit(200, "sign-in", "token", of["ci"]); !strings.Contains(page, "You may not look at any key") {
			t.Errorf("ci sees:\n%s", page)
		}
		steps.Must(t, tokens.Load(strings.NewReader("x - all *")))
		b.visit(401, "") // the token is not in the file any more
	})
}
