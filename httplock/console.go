package httplock

import (
	"context"
	"net/http"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/httplock/console"
)

// initConsole makes the pages at the root of s.
func (s *Server) initConsole() {
	s.console = console.New(s.locks, &console.Options{
		Store: s.o.Store, Identify: s.visitor, Broke: s.broke, Watch: s.watch,
	})
	context.AfterFunc(s.draining, s.console.Close)
}

// serveConsole answers for a page of the console. It reports false if r asks for something else.
func (s *Server) serveConsole(c *call) bool {
	if !s.console.Serves(c.URL.Path) {
		return false
	}
	if err := c.checkHost(); err != nil {
		c.write(nil, err)
		return true
	}
	_ = c.out.SetWriteDeadline(time.Now().Add(3 * chunkTimeout)) // of a page; a stream sets its own
	s.console.ServeHTTP(c.w, c.Request)
	_ = c.slow().Close()
	return true
}

// visitor finds out who sends r: by its own headers and certificate, or by the token that a
// person has signed in with.
func (s *Server) visitor(r *http.Request, token string) *console.Visitor {
	p, err := s.o.Tokens.identify(r)
	if err != nil && token != "" {
		p = s.o.Tokens.find(token)
	}
	if p == nil {
		return nil
	}
	v := &console.Visitor{Name: p.name}
	if p.can(verbLook) {
		v.Look = p.sees
	}
	if p.can(verbBreak) {
		v.Break = p.sees
	}
	return v
}

// broke notes a break of the console as one of the API is noted.
func (s *Server) broke(
	r *http.Request, v *console.Visitor, key string, token fence.Token, how fencelock.Break, err error,
) {
	c := &call{Request: r, s: s, who: &principal{name: v.Name}}
	c.auditBreak(key, token, how, err)
}
