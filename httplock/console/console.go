// Package console shows the lines of a store as web pages: who holds which lock, who waits and
// for how long, and what has happened. Whoever has the right may break a claim there.
//
// A Console is an http.Handler. httplock serves one at its root; the command fencelock console
// serves one for a single visitor. The pages work without scripts; a small script keeps them
// up to date.
//
// All text that comes from keys, notes, owners and reasons is escaped, and a strict
// Content-Security-Policy lets no script of a page run but the console's own.
package console

import (
	"context"
	"embed"
	"net/http"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/httplock/internal/watch"
)

// Options configure a Console. Nil and the zero value are ready to use.
type Options struct {
	// Store is what the pages call the store; it must not have a password in it.
	Store string

	// Identify finds out who sends r. token is what the visitor has signed in with, or empty.
	// It returns nil for one who has to sign in. A nil Identify lets everybody do everything.
	Identify func(r *http.Request, token string) *Visitor

	// Link, if there is one, lets in nobody but who opens it first. The Console then answers
	// only to an IP address or localhost as its Host.
	Link *Link

	// Broke is told of each break that a visitor tried, and what came of it.
	Broke func(r *http.Request, v *Visitor, key string, token fence.Token, how fencelock.Break, err error)

	// Always has the Console watch the lines while nobody looks, too.
	Always bool

	// Watch looks at the lines, for package httplock. Nil: the Console does so itself.
	Watch *watch.Watcher
}

// Visitor is who looks at the pages.
type Visitor struct {
	Name        string                // empty: nobody has to sign in
	Look, Break func(key string) bool // which keys it may look at and break; nil: none
}

func (v *Visitor) mayLook(key string) bool  { return v.Look != nil && v.Look(key) }
func (v *Visitor) mayBreak(key string) bool { return v.Break != nil && v.mayLook(key) && v.Break(key) }

// All is the right to every key.
func All(string) bool { return true }

// Console is an http.Handler. Its methods may be called from many goroutines at once.
type Console struct {
	o       Options
	locks   *fencelock.Client
	watch   *watch.Watcher
	origin  *http.CrossOriginProtection
	routes  map[string]route
	ended   context.Context
	end     context.CancelFunc
	streams chan struct{} // one for each open stream
}

// route is what one path answers.
type route struct {
	method string
	open   bool // to visitors that nobody knows
	serve  func(*visit)
}

const (
	maxBody      = 64 << 10
	bodyTimeout  = 10 * time.Second
	storeTimeout = 2 * time.Second
	breakTimeout = 10 * time.Second
	maxStreams   = 200
)

// New returns a Console on locks, which stays the caller's: close the Console before it.
// While somebody looks, and a minute longer, the Console reads all lines once a second,
// whatever the number of visitors.
func New(locks *fencelock.Client, o *Options) *Console {
	c := &Console{
		locks: locks, origin: http.NewCrossOriginProtection(), streams: make(chan struct{}, maxStreams),
	}
	if o != nil {
		c.o = *o
	}
	c.ended, c.end = context.WithCancel(context.Background())
	if c.watch = c.o.Watch; c.watch == nil {
		c.watch = watch.New(c.ended, locks, c.o.Always)
	}
	c.routes = map[string]route{
		"/":         {http.MethodGet, false, c.now},
		"/key":      {http.MethodGet, false, c.key},
		"/break":    {"", false, c.breaking},
		"/live":     {http.MethodGet, false, c.live},
		"/sign-in":  {http.MethodPost, true, c.signIn},
		"/sign-out": {http.MethodPost, true, c.signOut},
		"/open":     {http.MethodGet, true, c.openLink},
	}
	for name, kind := range assets {
		c.routes["/"+name] = route{http.MethodGet, true, func(v *visit) { v.asset(name, kind) }}
	}
	return c
}

// Close ends all streams and stops watching.
func (c *Console) Close() { c.end() }

// Serves reports whether the Console has something at this path.
func (c *Console) Serves(path string) bool {
	_, ok := c.routes[path]
	return ok
}

//go:embed static
var static embed.FS

// assets are the files beside the pages, and their types.
var assets = map[string]string{
	"console.css": "text/css; charset=utf-8",
	"console.js":  "text/javascript; charset=utf-8",
	"icon.svg":    "image/svg+xml",
}

// policy lets nothing into a page but what this server itself serves.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// ServeHTTP answers one request.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // slow bodies are let go
	}
	v := &visit{Request: r, c: c, w: w, lang: languageOf(w, r)}
	at, ok := c.routes[r.URL.Path]
	post := r.Method == http.MethodPost
	switch {
	case c.o.Link != nil && !isLocal(r.Host):
		v.refuse(http.StatusMisdirectedRequest, "misdirected")
	case !ok:
		v.refuse(http.StatusNotFound, "not-found")
	case post && at.method == http.MethodGet || !post && at.method == http.MethodPost,
		!post && r.Method != http.MethodGet && r.Method != http.MethodHead:
		v.refuse(http.StatusMethodNotAllowed, "method")
	case post && !v.readForm():
		v.refuse(http.StatusForbidden, "forged")
	case at.open:
		at.serve(v)
	default:
		if v.who = v.identify(); v.who == nil {
			v.askToSignIn(false)
			return
		}
		at.serve(v)
	}
}

// readForm reads the form of a POST, and reports whether it comes from a page of this Console.
func (v *visit) readForm() bool {
	if v.c.origin.Check(v.Request) != nil {
		return false
	}
	v.Body = http.MaxBytesReader(v.w, v.Body, maxBody)
	kind, _, _ := strings.Cut(v.Header.Get("Content-Type"), ";")
	if kind != "application/x-www-form-urlencoded" || v.ParseForm() != nil {
		return false
	}
	_ = http.NewResponseController(v.w).SetReadDeadline(time.Time{}) // the answer may take longer
	return v.ownForm(v.PostForm.Get("form"))
}

func (v *visit) asset(name, kind string) {
	b, err := static.ReadFile("static/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	v.w.Header().Set("Content-Type", kind)
	_, _ = v.w.Write(b)
}
