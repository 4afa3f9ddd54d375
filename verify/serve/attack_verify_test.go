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

const slowClients = 5000

// Beginnings of requests that never end. TestSlowConnectionsAreLetGo of httplock knows how long the server waits.
var endless = []string{
	"POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
	"POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n ",
}

// attack is many clients that send a byte a second, and come again when they are let go.
type attack struct {
	addr      string
	open, let atomic.Int64
}

// 5000 slow connections are let go, and come again; an ordinary client has its locks beside them.
func TestThousandsOfSlowConnections(t *testing.T) {
	var files syscall.Rlimit
	steps.Must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	if files.Cur < slowClients+500 { // package os has raised it as far as it may
		t.Fatalf("a process may have %d files open; the test needs %d", files.Cur, slowClients+500)
	}
	i := &instance{t: t, command: buildCommand(t), store: testserver.Redis(t).URL()}
	i.start()
	t.Cleanup(i.kill)
	a := &attack{addr: i.addr.Load().(string)}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	var all sync.WaitGroup
	for n := range slowClients {
		all.Go(func() { a.slow(ctx, endless[n%len(endless)]) })
	}
	c := &client{"http://" + a.addr, "ordinary", http.DefaultClient}
	locks, most := 0, int64(0)
	for ; most < slowClients || a.let.Load() < 2*slowClients || locks < 100; locks++ {
		h, err := c.acquire(ctx, "k", fmt.Sprint("wish-no-", locks), time.Minute)
		if err == nil {
			err = c.release(ctx, h)
		}
		if err != nil {
			t.Errorf("%d connections at a time, %d let go, %d locks, and then: %v", most, a.let.Load(), locks, err)
			break
		}
		most = max(most, a.open.Load())
		pauseOrEnd(ctx, 10*time.Millisecond)
	}
	stop()
	all.Wait()
}

// slow is one of the clients.
func (a *attack) slow(ctx context.Context, begin string) {
	for ctx.Err() == nil {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.addr)
		if err != nil {
			pauseOrEnd(ctx, time.Second)
			continue
		}
		a.open.Add(1)
		_, err = io.WriteString(c, begin)
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
		if ctx.Err() == nil {
			a.let.Add(1)
		}
	}
}
