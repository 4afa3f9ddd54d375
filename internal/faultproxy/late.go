package faultproxy

import (
	"net"
	"time"
)

// late writes to a connection, as late as the delay of its way demands. It delays what follows at
// once by no more than that, as a long way does. One goroutine uses it.
type late struct {
	net.Conn
	proxy *Proxy
	way   Direction
	last  <-chan struct{} // closed when the last delayed message is written
}

func newLate(c net.Conn, p *Proxy, way Direction) *late {
	none := make(chan struct{})
	close(none)
	return &late{c, p, way, none}
}

func (l *late) Write(m []byte) (int, error) {
	delay := l.proxy.delay(l.way)
	select {
	case <-l.last:
		if delay == 0 {
			return l.Conn.Write(m)
		}
	default:
	}
	due, before, written := time.After(delay), l.last, make(chan struct{})
	l.last = written
	l.proxy.all.Go(func() {
		defer close(written)
		wait(l.proxy, due)
		wait(l.proxy, before)
		_, _ = l.Conn.Write(m) // who reads from a connection hears that it has ended
	})
	return len(m), nil
}

// flush waits until all is written.
func (l *late) flush() { wait(l.proxy, l.last) }
