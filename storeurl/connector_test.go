package storeurl

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// slowServer opens connections when it is told to.
type slowServer struct {
	begun, closed, canceled atomic.Int32
	open                    chan error // what becomes of the next connection
}

func (s *slowServer) Connect(ctx context.Context) (sqldriver.Conn, error) {
	s.begun.Add(1)
	select {
	case err := <-s.open:
		return &slowConn{s: s}, err
	case <-ctx.Done():
		s.canceled.Add(1)
		return nil, ctx.Err()
	}
}

func (s *slowServer) Driver() sqldriver.Driver { return nil }

type slowConn struct {
	sqldriver.Conn
	s *slowServer
}

func (c *slowConn) Close() error { c.s.closed.Add(1); return nil }

// connectFor asks for a connection, for a while.
func connectFor(t *testing.T, c *connector, d time.Duration) (sqldriver.Conn, error) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return c.Connect(ctx)
}

func inBubble(t *testing.T, f func(t *testing.T, s *slowServer, c *connector)) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowServer{open: make(chan error, 10)}
		c := newConnector(s)
		f(t, s, c)
		steps.OK(t, c.Close())
	})
}

// TestNextCallTakesOverAConnection: callers who give up one after the other cost a server that is
// away one connection, and the one who waits when it is back gets it.
func TestNextCallTakesOverAConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, s *slowServer, c *connector) {
		for range 10 {
			if _, err := connectFor(t, c, 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("a server that is away: %v", err)
			}
		}
		s.open <- nil
		conn, err := connectFor(t, c, time.Second)
		if err != nil || conn == nil {
			t.Fatalf("it is back: %v", err)
		}
		steps.Same(t, "connections were begun", s.begun.Load(), 1)
	})
}

// TestConnectionsAreTakenOverOnce: two who wait get one each.
func TestConnectionsAreTakenOverOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *slowServer, c *connector) {
		_, _ = connectFor(t, c, time.Millisecond)
		s.open <- nil
		s.open <- nil
		one, err := connectFor(t, c, time.Second)
		two, err2 := connectFor(t, c, time.Second)
		steps.Must(t, errors.Join(err, err2))
		if one == two {
			t.Error("both got the same connection")
		}
	})
}

// TestFailedConnectionIsNotTakenOver: who comes later is not told of an error from before.
func TestFailedConnectionIsNotTakenOver(t *testing.T) {
	inBubble(t, func(t *testing.T, s *slowServer, c *connector) {
		_, _ = connectFor(t, c, time.Millisecond)
		s.open <- errors.New("the server is starting up")
		synctest.Wait()
		s.open <- nil
		steps.Well(t, "a later call", steps.ErrOf(connectFor(t, c, time.Second)))
	})
}

// TestLateConnectionEnds: what nobody wants for a while is closed, and what does not open is given
// up, also while somebody waits for it: a connection whose packets are lost never opens.
func TestLateConnectionEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, s *slowServer, c *connector) {
		_, _ = connectFor(t, c, time.Millisecond)
		s.open <- nil
		time.Sleep(lateFor + time.Second)
		steps.Same(t, "connections were closed", s.closed.Load(), 1)

		for range 20 {
			_, _ = connectFor(t, c, lateFor/5)
		}
		if n := s.begun.Load() - 1; n < 3 || n > 5 {
			t.Errorf("%d connections were begun in %v, of which each has at most %v", n, 4*lateFor, lateFor+lateFor/5)
		}
	})
}

// TestCloseEndsConnectionsNobodyTook: those that are open, and those that are not.
func TestCloseEndsConnectionsNobodyTook(t *testing.T) {
	inBubble(t, func(t *testing.T, s *slowServer, c *connector) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 2 {
			go func() { _, _ = c.Connect(ctx) }()
		}
		time.Sleep(2 * time.Second)
		s.open <- nil
		synctest.Wait()
		_ = c.Close()
		if closed, canceled := s.closed.Load(), s.canceled.Load(); closed != 1 || canceled != 1 {
			t.Errorf("%d were closed and %d canceled; want one of each", closed, canceled)
		}
		steps.Is(t, "after Close", steps.ErrOf(connectFor(t, c, time.Second)), context.Canceled)
	})
}

// TestLateConnectionIsGivenUpByThoseWhoLeft: the call that has taken it over goes on with another.
func TestLateConnectionIsGivenUpByThoseWhoLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, s *slowServer, c *connector) {
		_, _ = connectFor(t, c, time.Millisecond)
		time.Sleep(lateFor - 100*time.Millisecond)
		time.AfterFunc(200*time.Millisecond, func() { s.open <- nil })
		steps.Well(t, "a call with time left was told", steps.ErrOf(connectFor(t, c, 30*time.Second)))
		if begun, canceled := s.begun.Load(), s.canceled.Load(); begun != 2 || canceled != 1 {
			t.Errorf("%d connections were begun and %d cancelled; want 2 and 1", begun, canceled)
		}
	})
}
