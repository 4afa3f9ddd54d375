// Package faultproxy is a TCP proxy for tests. It cuts, delays, holds back and discards what
// passes, as a whole or at one request.
package faultproxy

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy passes everything on until it is told to do worse.
type Proxy struct {
	target   string // empty if the first line of each connection names it
	framer   Framer
	notes    bool // requests are kept
	listener net.Listener
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	all      sync.WaitGroup

	hook   sync.Mutex // held while handle runs
	handle func(*Request) Action

	mu       sync.Mutex
	conns    map[net.Conn]bool
	requests []Request
	refuse   bool
	ways     [2]way
	resumed  chan struct{} // closed by the next Resume
}

// Direction is one way through a proxy.
type Direction int

// The directions.
const (
	ToServer Direction = iota
	ToClient
)

// way is the state of one direction.
type way struct {
	hold, discard bool
	delay         time.Duration
}

// Listen starts a proxy on a loopback port. It passes on to target; if that is empty, to the
// address that the first line of each connection names. The zero Framer understands nothing.
func Listen(target string, f Framer) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		target: target, framer: f.orPieces(), notes: f.Request != nil, listener: l,
		conns: map[net.Conn]bool{}, resumed: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.all.Go(p.accept)
	return p, nil
}

// Start is Listen for a test, with which the proxy ends.
func Start(t testing.TB, target string, f Framer) *Proxy {
	t.Helper()
	p, err := Listen(target, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Aim passes new connections on to another target.
func (p *Proxy) Aim(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close ends the proxy and all connections through it.
func (p *Proxy) Close() {
	p.listener.Close()
	p.cancel()
	p.Cut()
	p.all.Wait()
}

// Cut ends all connections, in the middle of whatever they carry, with a reset.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
		delete(p.conns, c)
	}
}

// Refuse cuts all connections, and closes new ones at once until Resume.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	p.refuse = true
	p.mu.Unlock()
	p.Cut()
}

// Hold holds back what goes these ways until Resume. Connections stay open. What was held
// back arrives then, as a network repeats what it lost.
func (p *Proxy) Hold(ds ...Direction) {
	p.change(ds, func(w *way) { w.hold = true })
}

// Discard loses what goes these ways until Resume. Connections stay open.
func (p *Proxy) Discard(ds ...Direction) {
	p.change(ds, func(w *way) { w.discard = true })
}

// Delay adds d to a round trip, half of it each way, until Resume. The delays of messages do not add up.
func (p *Proxy) Delay(d time.Duration) {
	p.change([]Direction{ToServer, ToClient}, func(w *way) { w.delay = d / 2 })
}

func (p *Proxy) change(ds []Direction, f func(*way)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range ds {
		f(&p.ways[d])
	}
}

// Resume ends Refuse, Hold, Discard and Delay, and lets pass what actions hold back.
// After a Cut, nothing held back arrives.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse, p.ways = false, [2]way{}
	close(p.resumed)
	p.resumed = make(chan struct{})
}

// Handle has f judge each request from now on, one at a time; nil lets all pass. f may call
// all other methods but Close. Once Handle has returned, its predecessor does not run any more.
func (p *Proxy) Handle(f func(*Request) Action) {
	p.hook.Lock()
	defer p.hook.Unlock()
	p.handle = f
}

// CutAt has a happen to the n-th request from now on that the server answers; the others pass. then, unless it is nil,
// runs when that has broken the connection. came reports whether the request has come. With n = 1, 2, 3, … until it
// does not come, a test sees every moment at which the connection of a step can break.
func (p *Proxy) CutAt(n int, a Action, then func()) (came func() bool) {
	var requests atomic.Int64
	p.Handle(func(r *Request) Action {
		if !r.Asks || requests.Add(1) != int64(n) {
			return Pass
		}
		r.AfterCut = then
		return a
	})
	return func() bool { return requests.Load() >= int64(n) }
}

// Requests are those that came since Forget. A proxy without a Framer keeps none.
func (p *Proxy) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Forget makes Requests begin again.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = nil
}

// Open counts the connections of clients and to servers that are open.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.serve(c) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	if !p.keep(client) {
		return
	}
	defer p.drop(client)
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	if target == "" {
		if _, err := fmt.Fscanln(client, &target); err != nil { // it reads nothing of what follows
			return
		}
	}
	dialer := net.Dialer{Timeout: 5 * time.Second}
	server, err := dialer.DialContext(p.ctx, "tcp", target)
	if err != nil || !p.keep(server) {
		return
	}
	defer p.drop(server)
	toClient, toServer := newLate(client, p, ToClient), newLate(server, p, ToServer)
	c := &conn{proxy: p, client: toClient, server: toServer, ended: make(chan struct{})}
	p.all.Go(c.passAnswers)
	c.passRequests()
}

// keep has Cut and Close end c. It closes c and returns false if there is to be none.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.ctx.Err() != nil {
		c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) drop(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// await waits as the direction demands. It returns false if what goes that way is lost.
func (p *Proxy) await(d Direction) bool {
	p.mu.Lock()
	w, resumed := p.ways[d], p.resumed
	p.mu.Unlock()
	if w.hold {
		wait(p, resumed)
	}
	return !w.discard
}

func (p *Proxy) delay(d Direction) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ways[d].delay
}

// wait waits for c, or for the end of p.
func wait[T any](p *Proxy, c <-chan T) {
	select {
	case <-c:
	case <-p.ctx.Done():
	}
}

// nextResume is closed by the next Resume.
func (p *Proxy) nextResume() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.resumed
}

// judge notes a request, and says what becomes of it.
func (p *Proxy) judge(r *Request) Action {
	p.hook.Lock()
	defer p.hook.Unlock()
	if p.notes {
		p.mu.Lock()
		p.requests = append(p.requests, *r)
		p.mu.Unlock()
	}
	if p.handle == nil {
		return Pass
	}
	return p.handle(r)
}
