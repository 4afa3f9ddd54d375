package zklock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
)

// contender wants one lock, on a session of its own.
type contender interface {
	lock() (context.Context, error) // the context ends when the holder gives the lock back or is told of its loss
	unlock() error
	waits() bool // for the holder, in a session that lives
	over() bool  // its session has ended on the server
}

// bareNode is scheme 18 of the lab, as tutorials write it with go-zookeeper.
type bareNode struct {
	conn     *zk.Conn
	path     string
	s        *testserver.Server
	work     context.Context // ends with unlock: no holder is ever told of its loss
	finish   context.CancelFunc
	watching atomic.Bool
}

func newBareNode(t testing.TB, s *testserver.Server, addr string, session time.Duration) contender {
	conn, _, err := zk.Connect([]string{addr}, session, zk.WithLogger(log.New(io.Discard, "", 0)))
	steps.Must(t, err)
	t.Cleanup(conn.Close)
	l := &bareNode{conn: conn, path: "/bare-node", s: s}
	l.work, l.finish = context.WithCancel(t.Context())
	return l
}

func (l *bareNode) lock() (context.Context, error) {
	_, err := l.conn.Create(l.path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	if err != zk.ErrNodeExists {
		return l.work, err
	}
	_, _, event, err := l.conn.ExistsW(l.path)
	if err != nil {
		return nil, err
	}
	l.watching.Store(true)
	<-event
	_, _ = l.conn.Create(l.path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	return l.work, nil
}

func (l *bareNode) unlock() error {
	l.finish()
	return l.conn.Delete(l.path, -1)
}

func (l *bareNode) waits() bool {
	watches, err := l.s.FourLetters(l.work, "wchp")
	return err == nil && l.watching.Load() && strings.Contains(watches, l.path)
}

func (l *bareNode) over() bool {
	sessions, err := l.s.FourLetters(l.work, "dump")
	return err == nil && !strings.Contains(sessions, fmt.Sprintf("0x%x", uint64(l.conn.SessionID())))
}

// ours is the lock of this project.
type ours struct {
	client *fencelock.Client
	lease  *fencelock.Lease
	admin  *zk.Conn
	t      testing.TB
}

func newOurs(t testing.TB, s *testserver.Server, addr string, session time.Duration) contender {
	b := New([]string{addr}, below(t, &Options{SessionTimeout: session}))
	c := testclient.New(t, b, &fencelock.Options{TTL: session / 2})
	t.Cleanup(func() { c.Close() })
	return &ours{client: c, admin: admin(t, s), t: t}
}

func (l *ours) lock() (context.Context, error) {
	var err error
	if l.lease, err = l.client.Lock(l.t.Context(), "k"); err != nil {
		return nil, err
	}
	return l.lease.Context(), nil
}

func (l *ours) unlock() error { return l.lease.Release(l.t.Context()) }
func (l *ours) waits() bool   { return len(nodes(l.t, l.admin, "k")) == 2 }
func (l *ours) over() bool    { return len(nodes(l.t, l.admin, "k")) == 1 }

// The session of a holder ends, and then that of a waiter. The bare node lets a second holder in,
// and a third.
//
//verify:fault ZooKeeper | lease revoked, or session expired
func TestEndsOfSessionsLetTwoInAtABareNode(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]struct {
		open   func(testing.TB, *testserver.Server, string, time.Duration) contender
		inside []int // when A, B and C are granted
	}{
		"bare node": {newBareNode, []int{1, 2, 3}},
		"zklock":    {newOurs, []int{1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testserver.ZooKeeper(t)
			wireA, wireC := newProxy(t, s), newProxy(t, s)
			const short = 3 * time.Second
			a, b, c := lock.open(t, s, wireA.Addr(), short), lock.open(t, s, s.Addr(), time.Minute), lock.open(t, s, wireC.Addr(), short)
			if inside := sessionsEnd(t, a, b, c, wireA, wireC); !slices.Equal(inside, lock.inside) {
				t.Errorf("when A, B and C were granted, %v were inside; want %v", inside, lock.inside)
			}
		})
	}
}

// sessionsEnd plays the schedule. It returns how many were inside at each grant.
func sessionsEnd(t *testing.T, a, b, c contender, wireA, wireC *faultproxy.Proxy) (inside []int) {
	var holders []context.Context
	enters := func(holder context.Context, err error) {
		t.Helper()
		steps.Must(t, err)
		holders = append(slices.DeleteFunc(holders, func(h context.Context) bool { return h.Err() != nil }), holder)
		inside = append(inside, len(holders))
	}
	enters(a.lock())
	wireA.Refuse()
	enters(b.lock())
	type grant struct {
		holder context.Context
		err    error
	}
	granted := make(chan grant, 1)
	go func() {
		holder, err := c.lock()
		granted <- grant{holder, err}
	}()
	eventually(t, "C waits", c.waits)
	wireC.Refuse()
	eventually(t, "the session of C has ended", c.over)
	wireC.Resume()
	eventually(t, "C is granted or waits again", func() bool { return len(granted) > 0 || c.waits() })
	if len(granted) == 0 {
		steps.Must(t, b.unlock())
	}
	g := <-granted
	enters(g.holder, g.err)
	return inside
}

// stayingLine makes the line of key as a node that the server does not clear away: when it
// looks for empty containers is none of a test's business.
func stayingLine(t testing.TB, b *Backend, c *zk.Conn, key string) (line string) {
	t.Helper()
	if err := b.Connect(t.Context()); err != nil { // it makes the folder
		t.Fatal(err)
	}
	line = b.lineOf(key)
	steps.Must(t, steps.ErrOf(c.Create(line, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))))
	t.Cleanup(func() { _ = c.Delete(line, -1) })
	return line
}

// Whoever comes back to a line that it has left empty joins it at once, and who does not
// wait can tell that nobody was there since.
//
//verify:fault ZooKeeper | requests of a free lock and of its release
func TestLineThatWasLeftCostsOneRequest(t *testing.T) {
	s, p, b := quietly(t)
	a := admin(t, s)
	for i, c := range []driver.Claim{steps.Claim("a"), steps.NoWait(steps.Claim("b")), steps.Reader("c")} {
		stayingLine(t, b, a, c.Key)
		p.Forget()
		for n := range 4 {
			c.ID = fmt.Sprint("visit", i, n)
			k := steps.Hold(t, b, c)
			switch {
			case n > 0:
				sent(t, p, "Enter of a line that was left", opMulti)
			case c.NoWait:
				sent(t, p, "the first Enter that does not wait", opCreateContainer, opChildren, opMulti)
			default:
				sent(t, p, "the first Enter", opCreateContainer, opMulti)
			}
			steps.Leave(t, b, k)
			sent(t, p, "Leave", opMulti)
		}
	}
}

// What another process did to a line since it was left is seen, and a claim that does not
// wait is refused without a trace.
func TestLineThatWasLeftMayBeTaken(t *testing.T) {
	s, b, other := twoSessions(t)
	a := admin(t, s)
	line := stayingLine(t, b, a, "k")
	visit := func(b *Backend, id string) driver.Ticket {
		t.Helper()
		c := steps.NoWait(steps.Claim("k"))
		c.ID = id
		return steps.Hold(t, b, c)
	}
	steps.Leave(t, b, visit(b, "first"))
	k := visit(other, "other")
	_, before, err := a.Get(line)
	steps.Must(t, err)
	var busy *driver.BusyError
	c := steps.NoWait(steps.Claim("k"))
	if _, err := b.Enter(t.Context(), c); !errors.As(err, &busy) || busy.Token != k.Token {
		t.Errorf("a claim on a lock that another holds by now: %v; want that it is busy", err)
	}
	if _, now, err := a.Get(line); err != nil || *now != *before {
		t.Errorf("the refusal changed the line from %+v to %+v, error %v", before, now, err)
	}
	steps.Leave(t, other, k)
	// It was taken and left: its version is another one.
	steps.Leave(t, b, visit(b, "second"))
	w := visit(other, "again")
	waits := steps.Wait(t, b, steps.Claim("k"))
	steps.Leave(t, other, w)
	steps.Leave(t, b, steps.Granted(t, b, waits))
}

// A line that is gone is made again, by those who wait and by those who do not.
func TestLineThatWasLeftMayBeGone(t *testing.T) {
	t.Parallel()
	s := server(t)
	b := connect(t, long, s)
	a := admin(t, s)
	line := b.lineOf("k")
	for n, c := range []driver.Claim{steps.Claim("k"), steps.NoWait(steps.Claim("k")), steps.Claim("k")} {
		c.ID = fmt.Sprint("visit", n)
		steps.Leave(t, b, steps.Hold(t, b, c))
		if err := a.Delete(line, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			t.Fatal(err)
		}
	}
	// Another version of it, as old as the one that was left.
	steps.Leave(t, b, steps.Hold(t, b, steps.Claim("k")))
	known := b.containers.byKey["k"]
	other := connect(t, long, s)
	for {
		k := steps.Hold(t, other, steps.Claim("k"))
		if _, stat, err := a.Get(line); err != nil {
			t.Fatal(err)
		} else if stat.Version >= known.version {
			b.containers.mu.Lock()
			b.containers.byKey["k"] = container{time.Now(), stat.Version}
			b.containers.mu.Unlock()
			var busy *driver.BusyError
			if _, err := b.Enter(t.Context(), steps.NoWait(steps.Claim("k"))); !errors.As(err, &busy) {
				t.Errorf("a claim that does not wait, on a line whose version is as it was: %v; want that it is busy", err)
			}
			steps.Leave(t, other, k)
			break
		}
		steps.Leave(t, other, k)
	}
	empty(t, s)
}

// Where many lines are in use their containers go with their last claims.
func TestFewEmptyLinesAreLeft(t *testing.T) {
	t.Parallel()
	s := server(t)
	b := connect(t, long, s)
	a := admin(t, s)
	b.containers.mu.Lock()
	b.containers.byKey = make(map[string]container)
	for n := range maxContainers {
		b.containers.byKey[fmt.Sprint("full", n)] = container{seen: time.Now()}
	}
	b.containers.mu.Unlock()
	line := stayingLine(t, b, a, "k")
	steps.Leave(t, b, steps.Hold(t, b, steps.Claim("k")))
	if there, _, err := a.Exists(line); there || err != nil {
		t.Errorf("the line is left behind: %v, error %v", there, err)
	}
	if n := len(b.containers.byKey); n > maxContainers {
		t.Errorf("%d lines are remembered; want %d at most", n, maxContainers)
	}
	// Those that nobody has used for long make room.
	b.containers.mu.Lock()
	for key := range b.containers.byKey {
		b.containers.byKey[key] = container{seen: time.Now().Add(-2 * containerAge)}
	}
	b.containers.mu.Unlock()
	line = stayingLine(t, b, a, "l")
	steps.Leave(t, b, steps.Hold(t, b, steps.Claim("l")))
	if there, _, err := a.Exists(line); !there || err != nil {
		t.Errorf("the line is not left to whoever comes back: %v, error %v", there, err)
	}
}
