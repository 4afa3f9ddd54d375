//go:build verify && unix

package serve_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

const (
	slowClients = 5000
	attackFor   = 20 * time.Second
	grace       = 10 * time.Second // of a machine with other things to do
)

// Beginnings of requests that never end, and how long the server waits for their ends.
var endless = []struct {
	begin string
	limit time.Duration
}{
	{"POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", 5 * time.Second},
	{"POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n ",
		10 * time.Second},
}

// attack is many clients that send a byte a second, and come again when they are let go.
type attack struct {
	*testing.T
	addr        string
	open, let   atomic.Int64
	longest     [2]atomic.Int64 // life of a connection, by its beginning
	unconnected atomic.Int64
}

// 5000 slow connections are let go, and come again; an ordinary client has its locks in time.
func TestThousandsOfSlowConnections(t *testing.T) {
	var files syscall.Rlimit
	steps.Must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	if files.Cur < slowClients+500 { // package os has raised it as far as it may
		t.Fatalf("a process may have %d files open; the test needs %d", files.Cur, slowClients+500)
	}
	i := &instance{t: t, command: buildCommand(t), store: testserver.Redis(t).URL()}
	i.start()
	t.Cleanup(i.kill)
	a := &attack{T: t, addr: i.addr.Load().(string)}
	ctx, stop := context.WithTimeout(t.Context(), attackFor)
	defer stop()
	var all sync.WaitGroup
	for n := range slowClients {
		all.Go(func() { a.slow(ctx, n%len(endless)) })
	}
	c := &client{"http://" + a.addr, "ordinary", http.DefaultClient}
	locks, most, longest := 0, int64(0), time.Duration(0)
	for ; ctx.Err() == nil; locks++ {
		begun := time.Now()
		h, err := c.acquire(context.Background(), "k", fmt.Sprint("wish-no-", locks), 10*time.Second)
		if err == nil {
			err = c.release(context.Background(), h)
		}
		steps.OK(t, err)
		longest, most = max(longest, time.Since(begun)), max(most, a.open.Load())
		pauseOrEnd(ctx, 10*time.Millisecond)
	}
	all.Wait()
	t.Logf("%d connections at a time; %d let go, after at most %v (headers) and %v (bodies); %d did not connect; "+
		"%d locks, the longest pair took %v", most, a.let.Load(), time.Duration(a.longest[0].Load()),
		time.Duration(a.longest[1].Load()), a.unconnected.Load(), locks, longest)
	if most < slowClients || a.let.Load() < slowClients || locks < 100 {
		t.Errorf("%d connections at a time, %d let go and %d locks are too few to say anything", most, a.let.Load(), locks)
	}
	if longest > 2*time.Second {
		t.Errorf("a lock took %v", longest)
	}
}

// slow is one of the clients.
func (a *attack) slow(ctx context.Context, kind int) {
	for ctx.Err() == nil {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.addr)
		if err != nil {
			a.unconnected.Add(1)
			pauseOrEnd(ctx, time.Second)
			continue
		}
		a.open.Add(1)
		begun := time.Now()
		_, err = io.WriteString(c, endless[kind].begin)
		for err == nil && ctx.Err() == nil {
			if err = c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				break
			}
			if _, err = io.Copy(io.Discard, c); err == nil { // the server has closed it
				err = io.EOF
			} else if e, ok := err.(net.Error); ok && e.Timeout() {
				_, err = io.WriteString(c, " ")
			}
		}
		c.Close()
		a.open.Add(-1)
		life := time.Since(begun)
		if life > endless[kind].limit+grace {
			a.Errorf("a slow connection lived for %v", life)
		}
		if ctx.Err() == nil {
			a.let.Add(1)
			a.longest[kind].Store(max(a.longest[kind].Load(), int64(life)))
		}
	}
}
