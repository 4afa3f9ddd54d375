package doctor_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/doctor"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
)

// balance leads each connection to the next of the servers, as a load balancer before two masters does. It
// returns its address.
func balance(t *testing.T, servers ...string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for n := 0; ; n++ {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", servers[n%len(servers)])
			if err != nil {
				client.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
				all.Go(func() {
					_, _ = io.Copy(way[0], way[1]) // it ends with either connection
					way[0].Close()
					way[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr().String()
}

// racers opens a store for so many clients, each with connections of its own.
func racers(t *testing.T, url string, clients int) (backends []driver.Backend) {
	t.Helper()
	for range clients {
		backends = append(backends, open(t, url).Backend)
	}
	return backends
}

// TestRaceFindsTwoMastersBehindOneAddress: an operator puts a load balancer before two Redis servers. Every
// request succeeds, and two programs hold one lock.
func TestRaceFindsTwoMastersBehindOneAddress(t *testing.T) {
	t.Parallel()
	one, two := testserver.Redis(t), testserver.Redis(t)
	address := balance(t, one.Addr(), two.Addr())
	o, err := doctor.Race(t.Context(), racers(t, "redis://"+address, 8), 32, 20)
	if err != nil || o.Several == 0 || o.Excludes() {
		t.Errorf("Race counted %+v, %v; want rounds with two winners", o, err)
	}
	o, err = doctor.Race(t.Context(), racers(t, one.URL(), 8), 32, 20)
	if err != nil || !o.Excludes() || o.One != 20 {
		t.Errorf("Race on one server counted %+v, %v; want one winner in each of 20 rounds", o, err)
	}
}
