package console

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/faulty"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/httplock"
	"github.com/fencelock/fencelock/httplock/console"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/memlock"
)

// service is a server with a console, and a client that takes locks in the same store.
type service struct {
	*testing.T
	*httptest.Server
	store driver.Backend
	locks *fencelock.Client
}

func serve(t *testing.T, o *httplock.Options) *service {
	t.Helper()
	store := memlock.New()
	return serveOn(t, store, store, o)
}

// serveOn has the server use one backend and the client that takes locks another one.
func serveOn(t *testing.T, servers, takers driver.Backend, o *httplock.Options) *service {
	t.Helper()
	client := newClient(t, servers)
	s, err := httplock.New(client, o)
	check(t, err)
	web := testclient.Serve(t, s.HTTPServer(), s.Drain)
	return &service{t, web, takers, newClient(t, takers)}
}

func newClient(t *testing.T, b driver.Backend) *fencelock.Client {
	t.Helper()
	c := testclient.New(t, b, &fencelock.Options{})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *service) lock(key, owner string, options ...fencelock.Option) *fencelock.Lease {
	s.Helper()
	return testclient.Lock(s, s.locks, key, append(options, fencelock.Owner(owner))...)
}

// wait waits for a lock in the background, with a claim of its own. It returns when the claim
// is in line.
func (s *service) wait(key, owner string, options ...fencelock.Option) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan struct{})
	client := newClient(s.T, s.store)
	go func() {
		defer close(done)
		_, _ = client.Lock(ctx, key, append(options, fencelock.Owner(owner))...)
	}()
	s.Cleanup(func() { cancel(); <-done })
	testserver.Eventually(s, patience, owner+" is in the line of "+key, func() bool {
		l, err := s.locks.Line(s.Context(), key)
		check(s, err)
		return slices.ContainsFunc(l.Claims, func(c fencelock.Standing) bool { return !c.Granted && c.Owner == owner })
	})
}

var check = steps.Must

func keyPath(key string) string { return "/key?key=" + url.QueryEscape(key) }

func TestPagesAreLive(t *testing.T) {
	s := serve(t, &httplock.Options{Store: "memory"})
	b := newBrowser(t, s.URL)
	b.open("/")
	b.says("Nobody holds a lock", "fencelock run nightly")
	evaluate[bool](b, "window.samePage = true")
	lease := s.lock("nightly", "alice@web-1/812", fencelock.Note("deploy 7"))
	b.says("1 key in use", "nightly", "alice@web-1/812", "deploy 7")
	s.wait("nightly", "bob@web-2/99")
	s.wait("nightly", "carol@web-3/7")
	b.says("2 claims wait", "alice@web-1/812", "2 longest")
	b.await("the time left is counted", `document.querySelector(".fill").getAttribute("width") < 95`)
	if !evaluate[bool](b, "window.samePage === true") {
		t.Error("the page was loaded again instead of brought up to date")
	}

	b.open(keyPath("nightly"))
	b.says("holds", "alice@web-1/812", "1", "bob@web-2/99", "2", "carol@web-3/7")
	evaluate[bool](b, "window.samePage = true")
	check(t, lease.Release(t.Context()))
	b.says("holds", "bob@web-2/99", "1", "carol@web-3/7", "History", "acquired", "bob@web-2/99", "released", "alice@web-1/812")
	if !evaluate[bool](b, "window.samePage === true") {
		t.Error("the page was loaded again instead of brought up to date")
	}
	b.quiet()
}

// fill types into the form that breaks a claim, and sends it.
func (b *browser) fill(reason, confirm string) {
	b.Helper()
	for name, text := range map[string]string{"reason": reason, "confirm": confirm} {
		evaluate[bool](b, fmt.Sprintf(`(() => { const e = document.getElementById(%q); e.focus(); e.select(); return true; })()`, name))
		b.keys(text)
	}
	b.click("button.primary")
}

func (b *browser) click(selector string) {
	b.Helper()
	b.await("there is "+selector, fmt.Sprintf(`document.querySelector(%q) !== null`, selector))
	evaluate[bool](b, fmt.Sprintf(`(() => { document.querySelector(%q).click(); return true; })()`, selector))
}

func TestNoBreakWithoutTheRight(t *testing.T) {
	token, line := httplock.NewToken("eyes")
	tokens, err := httplock.ReadTokens(strings.NewReader(strings.Replace(line, "acquire  eyes/", "look  *", 1)))
	check(t, err)
	s := serve(t, &httplock.Options{Tokens: tokens})
	s.lock("nightly", "alice@web-1/812")
	b := newBrowser(t, s.URL)
	b.open("/")
	b.says("Sign in")
	b.lacks("nightly")
	b.keys(token) // the field has the focus
	b.keys(kb.Enter)
	b.says("nightly", "alice@web-1/812")
	b.open(keyPath("nightly"))
	b.says("holds", "alice@web-1/812", "You may look at this key, but not break its claims")
	if evaluate[int](b, `document.querySelectorAll("a.button, button.primary").length`) != 0 {
		t.Error("the page offers what the visitor may not do")
	}
	b.click("button.link")
	b.says("Sign in")
	b.open("/")
	b.says("Sign in")
	b.keys(token + kb.Enter)
	b.says("nightly")
	check(t, tokens.Load(strings.NewReader("somebody-else - all *")))
	s.lock("other", "bob@web-2/99")
	b.says("Sign in") // by itself
	b.lacks("bob@web-2/99")
}

const attack = `"'></title></td><img src=x onerror="document.documentElement.dataset.ran=1"><svg onload="document.documentElement.dataset.ran=1">` +
	`<script>document.documentElement.dataset.ran=1</script><a href="javascript:alert(1)">x</a>`

func TestScriptOfOthersDoesNotRun(t *testing.T) {
	s := serve(t, &httplock.Options{Store: attack})
	owner := attack
	lease := s.lock(attack, owner, fencelock.Note(attack))
	s.wait(attack, attack[60:], fencelock.Note(attack))
	b := newBrowser(t, s.URL)
	unharmed := func(path string, texts ...string) {
		t.Helper()
		b.open(path)
		b.says(texts...)
		if evaluate[bool](b, `"ran" in document.documentElement.dataset`) {
			t.Errorf("script ran on %s", path)
		}
		if n := evaluate[int](b, `document.querySelectorAll("main img, main a[href^=javascript], td svg:not(.bar), script:not([src])").length`); n != 0 {
			t.Errorf("%s has %d elements of others", path, n)
		}
		b.quiet()
	}
	unharmed("/", attack, owner)
	unharmed("/?prefix="+url.QueryEscape(attack), attack)
	unharmed(keyPath(attack), attack, owner, attack)
	path := "/break?key=" + url.QueryEscape(attack) + "&token=" + lease.Token().String()
	unharmed(path, attack, owner)
	b.fill(attack, owner)
	b.says("was broken", "reason: "+attack)
	b.await("live", `document.readyState === "complete"`)
	unharmed(keyPath(attack), "reason: "+attack)

	// And if an escape were missing, the policy would still stop the script.
	evaluate[bool](b, `(() => { window.blocked = 0; document.addEventListener("securitypolicyviolation", () => window.blocked++);
		const s = document.createElement("script"); s.textContent = "document.documentElement.dataset.ran = 1";
		document.body.append(s); const d = document.createElement("div"); document.body.append(d);
		d.innerHTML = "<img src=x onerror='document.documentElement.dataset.ran = 1'>"; return true; })()`)
	b.await("the policy has blocked both", `window.blocked >= 2 && document.querySelector("img[src=x]").complete`)
	if evaluate[bool](b, `"ran" in document.documentElement.dataset`) {
		t.Error("the policy lets a script in")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !strings.Contains(strings.Join(b.trouble, "\n"), "Content Security Policy") {
		t.Errorf("the browser tells of %q, not of the policy", b.trouble)
	}
}

// All of it works without a mouse, and the focus stays where it is while the page changes.
func TestKeyboardIsEnough(t *testing.T) {
	s := serve(t, nil)
	s.lock("nightly", "alice@web-1/812")
	s.lock("backup", "carol@web-3/7")
	b := newBrowser(t, s.URL)
	b.open("/")
	b.keys(kb.Tab)
	b.await("the first stop is the way to the content", `document.activeElement.getAttribute("href") === "#main"`)
	b.tabTo("prefix")
	b.keys("nigh")
	b.keys(kb.Enter)
	b.says("1 key in use", "nightly")
	b.lacks("backup")
	b.tabTo("nightly")
	s.wait("nightly", "bob@web-2/99")
	b.says("nightly", "1 longest")
	b.await("the focus has stayed", `document.activeElement.innerText === "nightly"`)
	b.keys(kb.Enter)
	b.says("holds", "alice@web-1/812")
	b.tabTo("Break")
	b.keys(kb.Enter)
	b.says("Break a claim")
	b.tabTo("reason")
	b.keys("hangs")
	b.tabTo("confirm")
	b.keys("bob" + kb.Enter)
	b.says("Nothing was changed yet", "What you typed to confirm is not alice@web-1/812")
	b.await("the errors have the focus", `document.activeElement.id === "errors"`)
	b.tabTo("confirm") // the error
	b.tabTo("confirm") // the field
	b.keys("alice@web-1/812" + kb.Enter)
	b.says("was broken", "holds", "bob@web-2/99")
	b.quiet()
}

func TestStoreGoesAndComesBack(t *testing.T) {
	store := memlock.New()
	wire := faulty.New(store, 1, faulty.Options{})
	s := serveOn(t, wire, store, nil)
	s.lock("nightly", "alice@web-1/812")
	b := newBrowser(t, s.URL)
	b.open("/")
	b.says("nightly")
	evaluate[bool](b, "window.samePage = true")
	wire.Set(faulty.Options{Fail: 1})
	b.says("The store does not answer since", "Below is what was true at", "nightly")
	b.await("nothing is counted on", `document.querySelector("#live[data-still] [data-age]") !== null`)
	wire.Set(faulty.Options{})
	b.await("the store is back", `!document.body.innerText.includes("does not answer")`)
	b.says("1 key in use", "nightly")
	if !evaluate[bool](b, "window.samePage === true") {
		t.Error("the page did not come back by itself")
	}
	b.quiet()
}

func TestServerGoesAndComesBack(t *testing.T) {
	t.Parallel()
	store := memlock.New()
	pages := console.New(newClient(t, store), nil)
	t.Cleanup(pages.Close)
	var serves atomic.Pointer[console.Console] // nil while the server is away
	serves.Store(pages)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := serves.Load(); p != nil {
			p.ServeHTTP(w, r)
			return
		}
		panic(http.ErrAbortHandler) // the connection is closed
	}))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	goes := func() {
		serves.Store(nil)
		web.CloseClientConnections()
	}
	b := newBrowser(t, web.URL)
	b.open("/")
	b.says("Nobody holds a lock")
	evaluate[bool](b, "window.samePage = true")
	goes()
	b.says("This page cannot reach its server")
	testclient.Lock(t, newClient(t, store), "nightly")
	serves.Store(pages)
	b.says("1 key in use", "nightly")
	b.await("the notice has gone", `document.getElementById("offline").hidden`)
	if !evaluate[bool](b, "window.samePage === true") {
		t.Error("the page did not come back by itself")
	}
	goes()
	other := console.New(newClient(t, store), &console.Options{Link: console.NewLink()})
	t.Cleanup(other.Close)
	serves.Store(other)
	b.says("Open the link") // a server that does not know the visitor any more
}

func TestPagesWorkWithoutScripts(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	lease := s.lock("nightly", "alice@web-1/812")
	b := newBrowser(t, s.URL)
	b.withoutScripts()
	b.open("/")
	b.says("nightly", "alice@web-1/812")
	s.lock("backup", "carol@web-3/7")
	b.says("2 keys in use", "backup", "carol@web-3/7") // the browser loads the page again
	b.open("/break?key=nightly&token=" + lease.Token().String())
	b.fill("hangs", "alice@web-1/812")
	b.says("was broken", "Nobody holds this key")
}

func TestNothingIsWiderThanAPhone(t *testing.T) {
	s := serve(t, &httplock.Options{Store: "postgres://a-host-with-a-long-name.example.internal:5432/locks"})
	long := "a-very-long-key/" + strings.Repeat("with-many-parts/", 20)
	lease := s.lock(long, strings.Repeat("owner", 40), fencelock.Note(strings.Repeat("note", 100)))
	s.wait(long, "bob@web-2/99")
	_, err := s.locks.Acquire(t.Context(), "pool", 1000, 1000000, fencelock.Owner("carol@web-3/7"))
	check(t, err)
	b := newBrowser(t, s.URL)
	for _, width := range []int64{360, 704, 1280} {
		b.size(width, 800)
		for _, lang := range []string{"en", "zh"} {
			for _, path := range []string{"/?", keyPath(long) + "&", keyPath("free") + "&",
				"/break?key=" + url.QueryEscape(long) + "&token=" + lease.Token().String() + "&"} {
				b.open(path + "lang=" + lang)
				b.fits(fmt.Sprintf("%s in %s at %d", strings.ReplaceAll(path, long, "LONG"), lang, width))
			}
		}
	}
	b.quiet()
}
