package zklock

import (
	"context"
	"fmt"
	"io"
	"log"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/go-zookeeper/zk"
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
