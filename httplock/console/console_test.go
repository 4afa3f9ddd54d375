package console_test

import (
	"context"
	"errors"
	"html"
	"io"
	"iter"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/faulty"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/httplock/console"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// store is a store that meets with faults, and counts the looks.
type store struct {
	*faulty.Backend
	looks atomic.Int64
}

func (s *store) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	s.looks.Add(1)
	return s.Backend.Lines(ctx, prefix)
}

var (
	down = faulty.Options{Fail: 1}
	full = faulty.Fault{Fail: true, Err: driver.Refused(errors.New("too many connections"))}
)

// site is a Console under test, and a browser without scripts.
type site struct {
	*testing.T
	memory *memlock.Store
	store  *store            // the same, as the Console has it
	client *fencelock.Client // of those who take locks
	pages  *console.Console
	jar    http.CookieJar
	header http.Header // sent with every request
}

const base = "http://127.0.0.1:7533"

func newSite(t *testing.T, o *console.Options) *site {
	t.Helper()
	s := &site{T: t, memory: memlock.New(), header: http.Header{}}
	s.store = &store{Backend: faulty.New(s.memory, 1, faulty.Options{})}
	s.client = newClient(t, s.memory, "taker")
	s.pages = console.New(newClient(t, s.store, "console"), o)
	t.Cleanup(s.pages.Close)
	s.jar = newJar()
	return s
}

func newClient(t *testing.T, b driver.Backend, owner string) *fencelock.Client {
	t.Helper()
	c := testclient.New(t, b, &fencelock.Options{Owner: owner})
	t.Cleanup(func() { steps.OK(t, c.Close()) })
	return c
}

// page is an answer.
type page struct {
	*testing.T
	path   string
	status int
	header http.Header
	html   string
}

// request sends a request to the Console. form is nil for a GET.
func (s *site) request(method, path string, form url.Values) *page {
	s.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r := httptest.NewRequest(method, base+path, body)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", base)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for _, c := range s.jar.Cookies(r.URL) {
		r.AddCookie(c)
	}
	for name, values := range s.header {
		r.Header[name] = values
		if name == "Host" {
			r.Host = values[0]
		}
	}
	w := httptest.NewRecorder()
	s.pages.ServeHTTP(w, r)
	s.jar.SetCookies(r.URL, w.Result().Cookies())
	return &page{s.T, path, w.Code, w.Result().Header, w.Body.String()}
}

func (s *site) get(path string) *page {
	s.Helper()
	return s.request(http.MethodGet, path, nil).want(http.StatusOK)
}

// want checks the status, and what all answers have in common.
func (p *page) want(status int) *page {
	p.Helper()
	if p.status != status {
		p.Errorf("%s: status %d, want %d\n%s", p.path, p.status, status, p.html)
	}
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
			"img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
		"X-Content-Type-Options": "nosniff",
		"Cache-Control":          "no-store",
	} {
		if got := p.header.Get(name); got != want {
			p.Errorf("%s: %s is %q", p.path, name, got)
		}
	}
	p.harmless()
	return p
}

var (
	values  = regexp.MustCompile(`"[^"]*"`)
	inline  = regexp.MustCompile(`(?i)<[^>]*\s(on\w+|style)\s*=[^>]*>|<style`)
	leads   = regexp.MustCompile(`(?i)(href|src|action)="\s*(javascript|data):`)
	scripts = regexp.MustCompile(`(?i)<script[^>]*>`)
)

// harmless checks that nothing on the page runs but the Console's own script.
func (p *page) harmless() {
	p.Helper()
	if !strings.HasPrefix(p.header.Get("Content-Type"), "text/html") {
		return
	}
	if found := inline.FindString(values.ReplaceAllString(p.html, `""`)) + leads.FindString(p.html); found != "" {
		p.Errorf("%s has %q", p.path, found)
	}
	for _, script := range scripts.FindAllString(p.html, -1) {
		if script != `<script src="console.js" defer>` {
			p.Errorf("%s has %q", p.path, script)
		}
	}
}

// text is what the page says, without its tags.
func (p *page) text() string {
	t := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(p.html, " ")
	return strings.Join(strings.Fields(html.UnescapeString(t)), " ")
}

// says wants texts in this order.
func (p *page) says(texts ...string) *page {
	p.Helper()
	rest := p.text()
	for _, want := range texts {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			p.Errorf("%s does not say %q, or not in this order:\n%s", p.path, want, p.text())
			return p
		}
		rest = after
	}
	return p
}

func (p *page) lacks(texts ...string) *page {
	p.Helper()
	for _, unwanted := range texts {
		if strings.Contains(p.text(), unwanted) {
			p.Errorf("%s says %q:\n%s", p.path, unwanted, p.text())
		}
	}
	return p
}

// href returns the address of the first link or form whose address begins so.
func (p *page) href(prefix string) string {
	p.Helper()
	m := regexp.MustCompile(`(?:href|action)="(` + regexp.QuoteMeta(prefix) + `[^"]*)"`).FindStringSubmatch(p.html)
	if m == nil {
		p.Fatalf("%s has no link to %s:\n%s", p.path, prefix, p.html)
	}
	return "/" + html.UnescapeString(m[1])
}

func (s *site) lock(key string, options ...fencelock.Option) *fencelock.Lease {
	s.Helper()
	return testclient.Lock(s, s.client, key, options...)
}

// wait is lock in the background; it returns when the claim is in line.
func (s *site) wait(key string, options ...fencelock.Option) <-chan *fencelock.Lease {
	s.Helper()
	got := make(chan *fencelock.Lease, 1)
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan struct{})
	c := newClient(s.T, s.memory, "waiter")
	go func() {
		defer close(done)
		if lease, err := c.Lock(ctx, key, options...); err == nil {
			got <- lease
		}
	}()
	s.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return got
}

// in runs a test in virtual time.
func in(t *testing.T, o *console.Options, f func(*site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newSite(t, o)) })
}

// nextLook lets the Console look once more.
func nextLook() {
	time.Sleep(1100 * time.Millisecond)
	synctest.Wait()
}

func newJar() http.CookieJar {
	jar, err := cookiejar.New(nil)
	if err != nil {
		panic(err) // without options it cannot fail
	}
	return jar
}
