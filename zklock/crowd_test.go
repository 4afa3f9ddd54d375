//go:build verify

package zklock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
)

// A server allows few connections from one host. A holder and those that wait have all of them,
// and more processes want to wait. The holder is cut off for two and a half seconds: its place
// is not taken, and it keeps its lock. Those that were turned away come in when others leave.
func TestHolderComesBackWhereManyWait(t *testing.T) {
	t.Parallel()
	const allowed, more = 6, 5
	s := testserver.ZooKeeper(t, testserver.Config(fmt.Sprint("maxClientCnxns=", allowed)))
	p := faultproxy.Start(t, s.Addr(), faultproxy.ZooKeeper)
	open := func(addr string) *Backend {
		b := New([]string{addr}, &Options{SessionTimeout: 60 * time.Second})
		b.crowd = &crowd{look: 300 * time.Millisecond} // as if in a process of its own, on a busy machine
		t.Cleanup(func() { b.Close() })
		return b
	}
	holder := open(p.Addr())
	held := hold(t, holder, exclusive("k"))
	var waiters []*Backend
	for range allowed - 1 {
		waiters = append(waiters, open(s.Addr()))
		wait(t, waiters[len(waiters)-1], exclusive("k"))
	}
	entered := make(chan error, more)
	for range more {
		b := open(s.Addr())
		eventually(t, "an error names the limit", func() bool {
			_, err := b.Enter(within(t, time.Second), exclusive("k"))
			return err != nil && strings.Contains(err.Error(), "maxClientCnxns")
		})
		go func() {
			for {
				_, err := b.Enter(within(t, time.Second), exclusive("k"))
				if err == nil || t.Context().Err() != nil {
					entered <- err
					return
				}
			}
		}()
	}

	p.Refuse()
	refused := time.Now()
	<-time.After(2500 * time.Millisecond)
	p.Resume()
	eventually(t, "the holder is back", func() bool {
		err := renew(holder, held)
		if driver.Gone(err) {
			t.Fatalf("the holder lost its lock: %v", err)
		}
		return err == nil
	})
	t.Logf("the holder was back after %v", time.Since(refused).Round(time.Millisecond))

	for _, b := range waiters {
		b.Close()
	}
	for range more - 2 { // one connection stays free
		select {
		case err := <-entered:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("a client that was turned away did not come in when there was room")
		}
	}
	leave(t, holder, held)
}
