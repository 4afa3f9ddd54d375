package httplock_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/httplock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// browser visits the console of a Server, below a prefix.
type browser struct {
	*testing.T
	*http.Client
	base string
	form string // the token of the forms of the last page
}

func newBrowser(t *testing.T, o *httplock.Options) (*browser, *fencelock.Client) {
	t.Helper()
	client := testclient.New(t, memlock.New(), &fencelock.Options{Owner: "server"})
	s, err := httplock.New(client, o)
	steps.Must(t, err)
	mux := http.NewServeMux()
	mux.Handle("/locks/", http.StripPrefix("/locks", s))
	web := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.Drain()
		web.Close()
		steps.OK(t, client.Close())
	})
	jar, err := cookiejar.New(nil)
	steps.Must(t, err)
	return &browser{T: t, Client: &http.Client{Jar: jar}, base: web.URL + "/locks/"}, client
}

// visit opens a page, or sends a form, and follows where that leads.
func (b *browser) visit(status int, path string, fields ...string) string {
	b.Helper()
	r, err := http.NewRequest(http.MethodGet, b.base+path, nil)
	if len(fields) > 0 {
		form := url.Values{"form": {b.form}}
		for i := 0; i < len(fields); i += 2 {
			form.Set(fields[i], fields[i+1])
		}
		r, err = http.NewRequest(http.MethodPost, b.base+path, strings.NewReader(form.Encode()))
	}
	steps.Must(b, err)
	if len(fields) > 0 {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", strings.TrimSuffix(b.base, "/locks/"))
	}
	res, err := b.Do(r)
	steps.Must(b, err)
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	steps.Must(b, err)
	if res.StatusCode != status {
		b.Errorf("%s: status %d, want %d\n%s", path, res.StatusCode, status, page)
	}
	if m := regexp.MustCompile(`name="form" value="([^"]+)"`).FindSubmatch(page); m != nil {
		b.form = string(m[1])
	}
	return string(page)
}

func TestConsoleAsksForAToken(t *testing.T) {
	tokens, of := tokensFor(t, "ops look,break ci/", "eyes look *", "ci acquire *")
	var log bytes.Buffer
	b, client := newBrowser(t, &httplock.Options{Tokens: tokens, Audit: slog.New(slog.NewJSONHandler(&log, nil))})
	lease, err := client.Lock(t.Context(), "ci/nightly", fencelock.Owner("alice@a"))
	steps.Must(t, err)
	steps.Must(t, steps.ErrOf(client.Lock(t.Context(), "other", fencelock.Owner("bob@b"))))
	if page := b.visit(401, ""); !strings.Contains(page, "Sign in") || strings.Contains(page, "alice") {
		t.Errorf("a visitor that nobody knows sees:\n%s", page)
	}
	b.visit(401, "sign-in", "token", of["ops"]+"x")
	b.visit(401, "sign-in", "token", "a b\r\nc")
	page := b.visit(200, "sign-in", "token", of["ops"])
	if !strings.Contains(page, "Signed in as ops") || !strings.Contains(page, "alice@a") || strings.Contains(page, "bob@b") {
		t.Errorf("ops sees:\n%s", page)
	}
	for _, c := range b.Jar.Cookies(must(url.Parse(b.base))) {
		if c.Name == "fencelock-token" {
			t.Error("the cookie is not bound to its port")
		}
	}
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
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// The API knows no cookies, so a page of another site has nothing to ride on.
func TestAPIIgnoresTheCookiesOfTheConsole(t *testing.T) {
	tokens, of := tokensFor(t, "root all *")
	b, _ := newBrowser(t, &httplock.Options{Tokens: tokens})
	b.visit(401, "")
	b.visit(200, "sign-in", "token", of["root"])
	b.visit(401, "v1/lines")
}

func TestConsoleWantsAKnownHost(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.server(nil)
		for host, want := range map[string]int{"localhost:7533": 200, "127.0.0.1": 200, "evil.example": 421} {
			r := httptest.NewRequest(http.MethodGet, "http://"+host+"/", nil)
			answer := httptest.NewRecorder()
			s.ServeHTTP(answer, r)
			steps.Same(t, host+": status", answer.Code, want)
		}
	})
}
