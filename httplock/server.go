package httplock

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/httplock/console"
	"github.com/fencelock/fencelock/httplock/internal/watch"
)

// Options configure a Server. Nil and the zero value are ready to use.
type Options struct {
	// Tokens says who may do what. Nil: everybody may do everything.
	Tokens *Tokens

	// Hosts are the names that clients call this Server by. IP addresses and localhost are
	// always answered to; "*" stands for every name.
	Hosts []string

	// Origins are the web origins whose scripts may use the API, as "https://host:port".
	Origins []string

	// Advertise is the base URL of this Server, for stores that cannot pass leases on: it is
	// in the handles. Peers are the base URLs of the others, which a 421 may point to.
	Advertise string
	Peers     []string

	// MaxWaiting and MaxHeld bound the claims of one principal that wait or are held through
	// this Server; default 1000 each.
	MaxWaiting, MaxHeld int

	// MaxViewers bounds the streams of events; default 1000.
	MaxViewers int

	// Store is what the console calls the store; it must not have a password in it.
	Store string

	// Audit gets a record of every change: who, what, key, token, result. Nil: none.
	Audit *slog.Logger
}

// Limits of requests.
const (
	// MaxKey is the length of the longest key that can be acquired, in bytes: a handle has it
	// in it.
	MaxKey = 256

	// MaxWait is the longest wait of one request.
	MaxWait = 5 * time.Minute

	maxBody       = 64 << 10
	maxHeader     = 16 << 10
	headerTimeout = 5 * time.Second
	bodyTimeout   = 10 * time.Second // of a whole body
	idleTimeout   = 2 * time.Minute
	readyTimeout  = 2 * time.Second
)

// Server is an http.Handler. Its methods may be called from many goroutines at once.
type Server struct {
	locks  *fencelock.Client
	o      Options
	hosts  map[string]bool
	routes map[string]route
	origin *http.CrossOriginProtection

	waits waits
	held  held
	kept  kept
	asked asked
	meter meter

	reloaded atomic.Pointer[chan struct{}] // closed by the next Load of the tokens

	watch   *watch.Watcher
	viewers atomic.Int64 // streams of events

	console *console.Console

	draining context.Context
	drain    context.CancelFunc
}

// route is what one path answers.
type route struct {
	method string
	open   bool // to everybody, by whatever Host
	serve  func(*call) (any, error)
}

// New returns a Server on locks, which stays the caller's: close it after the Server has
// drained. While a claim waits, its lease is at most Options.TTL of the Client, and so long it
// keeps its place when the connection of its client is closed: five seconds are good. The error
// says which option is bad.
func New(locks *fencelock.Client, o *Options) (*Server, error) {
	s := &Server{locks: locks, hosts: map[string]bool{}, origin: http.NewCrossOriginProtection()}
	if o != nil {
		s.o = *o
	}
	for _, h := range s.o.Hosts {
		s.hosts[strings.ToLower(h)] = true
	}
	for _, origin := range s.o.Origins {
		if err := s.origin.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("httplock: the origin %q: %w; want one such as https://host", origin, err)
		}
	}
	for i, base := range append([]string{s.o.Advertise}, s.o.Peers...) {
		if u, err := url.Parse(base); i+len(base) > 0 && (err != nil || u.Host == "" || !isHTTP(u.Scheme)) {
			return nil, fmt.Errorf("httplock: %q is no base URL; want one such as http://host:7533", base)
		}
	}
	s.o.MaxWaiting, s.o.MaxHeld = cmp.Or(s.o.MaxWaiting, 1000), cmp.Or(s.o.MaxHeld, 1000)
	s.o.MaxViewers = cmp.Or(s.o.MaxViewers, 1000)
	s.draining, s.drain = context.WithCancel(context.Background())
	s.waits.init(s.o.MaxWaiting)
	s.held.init(s)
	s.kept.init(s)
	s.watch = watch.New(s.draining, locks, false)
	s.meter.init()
	s.initConsole()
	s.routes = s.allRoutes()
	reloaded := make(chan struct{})
	s.reloaded.Store(&reloaded)
	s.o.Tokens.tell(s)
	return s, nil
}

func isHTTP(scheme string) bool { return scheme == "http" || scheme == "https" }

func (s *Server) allRoutes() map[string]route {
	return map[string]route{
		"/v1/acquire":      {http.MethodPost, false, s.acquire},
		"/v1/once":         {http.MethodPost, false, s.once},
		"/v1/renew":        {http.MethodPost, false, s.renew},
		"/v1/release":      {http.MethodPost, false, s.release},
		"/v1/check":        {http.MethodPost, false, s.check},
		"/v1/leave":        {http.MethodPost, false, s.leave},
		"/v1/break":        {http.MethodPost, false, s.breakClaim},
		"/v1/line":         {http.MethodGet, false, s.line},
		"/v1/lines":        {http.MethodGet, false, s.lines},
		"/v1/events":       {http.MethodGet, false, s.serveEvents},
		"/metrics":         {http.MethodGet, false, s.metrics},
		"/v1/openapi.json": {http.MethodGet, true, s.openapi},
		"/healthz":         {http.MethodGet, true, s.healthy},
		"/readyz":          {http.MethodGet, true, s.ready},
	}
}

// Drain ends the waiting of all clients with a hint to come again, here or at another Server,
// where they keep their places. From now on the Server grants nothing, and /readyz says so.
func (s *Server) Drain() {
	s.drain()
	s.waits.stopAll()
}

// Kept returns how many leases this Server keeps for stores that cannot pass leases on. They
// end with its Client.
func (s *Server) Kept() int { return s.kept.len() }

// HTTPServer returns an http.Server for s that bounds headers and slow connections.
func (s *Server) HTTPServer() *http.Server {
	return &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTimeout,
		MaxHeaderBytes:    maxHeader,
		IdleTimeout:       idleTimeout,
	}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{Request: r, s: s, w: w, start: time.Now(), out: http.NewResponseController(w)}
	c.limitBody()
	if s.serveConsole(c) {
		return
	}
	path, endpoint, found := s.route(r)
	body, err := c.answer(endpoint, found)
	status := c.status
	if status == 0 {
		status = c.write(body, err)
	}
	s.meter.count(path, status, time.Since(c.start))
}

// route finds what r asks for. path is fit for a label.
func (s *Server) route(r *http.Request) (path string, _ route, found bool) {
	if endpoint, ok := s.routes[r.URL.Path]; ok {
		return r.URL.Path, endpoint, true
	}
	if slug, ok := strings.CutPrefix(r.URL.Path, "/problems/"); ok {
		return "/problems", route{http.MethodGet, true, func(*call) (any, error) { return describe(slug) }}, true
	}
	return "other", route{}, false
}

// setHeader sets what all answers have. Calls that wait have no header yet: it takes memory.
//
// Node.js closes a connection after four idle seconds, unless the server names a time. Then it looks
// up the host in libuv's pool of threads, which the program may fill for longer than a lease lasts.
func (c *call) setHeader() {
	h := c.w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if s, ok := c.Context().Value(http.ServerContextKey).(*http.Server); ok && c.ProtoMajor == 1 && s.IdleTimeout > 0 {
		h.Set("Keep-Alive", "timeout="+strconv.Itoa(int(s.IdleTimeout/time.Second)))
	}
}

// call is one request and its answer.
type call struct {
	*http.Request
	s      *Server
	w      http.ResponseWriter
	out    *http.ResponseController
	start  time.Time
	who    *principal
	status int // set if the endpoint has answered by itself
}

// text is an answer that is not JSON.
type text struct{ kind, body string }

// errGone says that nobody waits for the answer.
var errGone = errors.New("the client has closed the connection")

func (c *call) answer(e route, found bool) (any, error) {
	if !e.open || !found {
		if err := c.checkHost(); err != nil {
			return nil, err
		}
	}
	if c.shareOrigin() && c.Method == http.MethodOptions {
		return text{}, nil
	}
	switch {
	case !found:
		return nil, &problem{slug: slugNotFound, detail: "There is nothing at this path; see /v1/openapi.json."}
	case c.Method != e.method && (e.method != http.MethodGet || c.Method != http.MethodHead):
		c.w.Header().Set("Allow", e.method)
		return nil, &problem{slug: slugMethod, detail: "Use " + e.method + " here."}
	case e.open:
		return e.serve(c)
	}
	if err := c.s.origin.Check(c.Request); err != nil {
		return nil, &problem{slug: slugForbidden, detail: "The request comes from a page of another origin; " +
			"start the server with --allow-origin to let its scripts in."}
	}
	var err error
	if c.who, err = c.s.o.Tokens.identify(c.Request); err != nil {
		return nil, err
	}
	return e.serve(c)
}

// write sends the answer and returns its status.
func (c *call) write(body any, err error) int {
	if errors.Is(err, errGone) {
		return statusGone
	}
	c.setHeader()
	if err != nil {
		return c.writeProblem(problemOf(err))
	}
	out := c.slow()
	switch b := body.(type) {
	case text:
		if b.kind == "" {
			c.w.WriteHeader(http.StatusNoContent)
			return http.StatusNoContent
		}
		c.w.Header().Set("Content-Type", b.kind)
		c.w.Header().Set("Content-Length", strconv.Itoa(len(b.body)))
		_, _ = io.WriteString(out, b.body)
	case *linesAnswer:
		c.w.Header().Set("Content-Type", "application/json")
		buffered := bufio.NewWriterSize(out, chunk)
		if b.writeTo(buffered) != nil || buffered.Flush() != nil {
			panic(http.ErrAbortHandler) // a client must not take a part for the whole
		}
	default:
		c.writeJSON(http.StatusOK, "application/json", body)
		return http.StatusOK
	}
	_ = out.Close()
	return http.StatusOK
}

func (s *Server) healthy(*call) (any, error) { return text{plainText, "ok\n"}, nil }

// ready asks the store.
func (s *Server) ready(c *call) (any, error) {
	if s.draining.Err() != nil {
		return nil, comeAgain(1)
	}
	ctx, cancel := context.WithTimeout(c.Context(), readyTimeout)
	defer cancel()
	if _, err := s.locks.Line(ctx, readyKey); err != nil {
		return nil, storeProblem(err)
	}
	return text{plainText, "ok\n"}, nil
}

// readyKey is a key that nobody has to use.
const readyKey = "fencelock/ready"

const plainText = "text/plain; charset=utf-8"
