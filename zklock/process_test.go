package zklock

import (
	"testing"
	"time"
)

// workerSession is the session of workers that are to be killed; with what the
// server adds: it looks at each tick, and sessions end at whole ticks.
const (
	workerSession = 2 * time.Second
	serverAdds    = time.Second
)

func TestKilledHolderIsGoneWithItsSession(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := start(t, order{Do: "hold", Servers: []string{s.Addr()}, Key: "k", Prefix: prefix(t), Session: workerSession})
	p.hears("entered true")
	p.hears("held")
	b := connect(t, long, s)
	w := wait(t, b, exclusive("k"))
	p.kill()
	killed := time.Now()
	w = granted(t, b, w)
	if took := time.Since(killed); took > workerSession+serverAdds {
		t.Errorf("the next in line got the lock %v after its holder was killed; want at most %v", took, workerSession+serverAdds)
	}
	leave(t, b, w)
	empty(t, s)
}

func TestKilledWaiterDelaysNobodyBeyondItsSession(t *testing.T) {
	t.Parallel()
	s := server(t)
	b := connect(t, long, s)
	h := hold(t, b, exclusive("k"))
	p := start(t, order{Do: "hold", Servers: []string{s.Addr()}, Key: "k", Prefix: prefix(t), Session: workerSession})
	p.hears("entered false")
	behind := wait(t, b, exclusive("k"))
	p.kill()
	killed := time.Now()
	leave(t, b, h)
	behind = granted(t, b, behind)
	if took := time.Since(killed); took > workerSession+serverAdds {
		t.Errorf("a killed waiter held up the line for %v; want at most %v", took, workerSession+serverAdds)
	}
	leave(t, b, behind)
	empty(t, s)
}

func TestWaiterInAnotherProcessIsWoken(t *testing.T) {
	t.Parallel()
	s := server(t)
	b := connect(t, long, s)
	h := hold(t, b, exclusive("k"))
	p := start(t, order{Do: "hold", Servers: []string{s.Addr()}, Key: "k", Prefix: prefix(t), Session: time.Minute})
	p.hears("entered false")
	behind := wait(t, b, exclusive("k"))
	leave(t, b, h)
	p.hears("held")
	p.tell()
	p.hears("left true")
	leave(t, b, granted(t, b, behind))
	empty(t, s)
}

// Nothing is left behind by a process that is killed while it holds the only claim:
// the server clears the empty container away.
func TestKilledHolderLeavesNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := start(t, order{Do: "hold", Servers: []string{s.Addr()}, Key: "k", Prefix: prefix(t), Session: workerSession})
	p.hears("entered true")
	p.hears("held")
	p.kill()
	empty(t, s)
}
