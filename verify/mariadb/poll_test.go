package mariadb_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// TestLongWaitsAskSeldom counts what twenty waiters of one process, who wait for long,
// ask of the server.
func TestLongWaitsAskSeldom(t *testing.T) {
	t.Parallel()
	p := newProxy(t, server(t).Addr())
	name := newDatabase(t)
	holder := hold(t, backend(t, openDSN(t, dsnOf(server(t), name, ""))), claim("k"))
	b := backend(t, openDSN(t, fmt.Sprintf("root@tcp(%s)/%s", p.listener.Addr(), name)))
	const waiters = 20
	var ws []driver.Ticket
	for range waiters {
		ws = append(ws, wait(t, b, reader("k")))
	}
	var wg sync.WaitGroup
	for _, w := range ws {
		wg.Go(func() { leave(t, b, granted(t, b, w)) })
	}
	settle := time.NewTimer(3 * time.Second)
	<-settle.C
	p.take()
	const long = 3 * time.Second
	timer := time.NewTimer(long)
	<-timer.C
	news, looks, others := 0, 0, 0
	for _, command := range p.take() {
		switch {
		case strings.Contains(command, "v1_news"):
			news++
		case strings.Contains(command, "v1_look"):
			looks++
		default:
			others++
		}
	}
	t.Logf("%d waiters asked %d times for news and read the line %d times within %v", waiters, news, looks, long)
	if seconds := int(long / time.Second); news > 10*seconds || looks > 10*seconds || others > 0 {
		t.Errorf("%d waiters asked %d times for news, read the line %d times and sent %d others within %v; want one poll for all, some times a second",
			waiters, news, looks, others, long)
	}
	began := time.Now()
	leave(t, b, holder)
	wg.Wait()
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("%d readers got the lock after %v", waiters, took)
	}
	empty(t, b)
}
