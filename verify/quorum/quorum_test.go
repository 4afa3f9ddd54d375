// Package quorum_test holds package quorumlock to its promises on real servers.
package quorum_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/internal/worker"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/redislock"
)

//verify:fault A quorum of five Redis | the first waiter is killed | n/a: a quorum has no line

func TestMain(m *testing.M) {
	redis.SetLogger(noLog{})
	worker.Main(hold)
	testserver.Parallel("6")
	os.Exit(m.Run())
}

// hold is what a worker does with a quorum of the servers at these addresses.
func hold(addrs []string) error {
	b, end := quorumOf(addrs, membership)
	defer end()
	c, err := fencelock.New(b, &fencelock.Options{TTL: lease})
	if err != nil {
		return err
	}
	defer c.Close()
	l, err := c.Lock(context.Background(), "k")
	if err != nil {
		return err
	}
	worker.Say("held", l.Token())
	// It says each moment that it still believes, and when it no longer does.
	for l.Err() == nil {
		worker.Say("believes", time.Now().UnixNano())
		<-time.After(2 * time.Millisecond) // real time: between two reports
	}
	worker.Say("lost")
	return nil
}

// noLog keeps the client library from filling the output with every refused connection.
type noLog struct{}

func (noLog) Printf(context.Context, string, ...any) {}

// membership is that of all tests: a quarantine that can be waited for.
var membership = ballot.Membership{Skew: time.Second, MaxTTL: 2500 * time.Millisecond}

// lasting is for the laws, which want claims to last, and clients that climb on one
// another's ballots to be able to, in steps of half a minute.
var lasting = ballot.Membership{Skew: time.Minute, MaxTTL: 20 * time.Minute}

// servers starts n Redis servers that keep nothing on a disk.
func servers(t *testing.T, n int, opts ...testserver.Option) []*testserver.Server {
	t.Helper()
	all := make([]*testserver.Server, n)
	for i := range all {
		all[i] = testserver.Redis(t, opts...)
	}
	return all
}

// member opens a server as a member; it is closed with its client by close.
func member(addr string, m ballot.Membership) (b driver.Backend, closeClient func()) {
	rdb := redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialTimeout: time.Second, DisableIdentity: true,
	})
	return redislock.New(rdb, &redislock.Options{Member: &m}), func() { rdb.Close() }
}

// quorumOf opens a quorum of the servers at these addresses.
func quorumOf(addrs []string, of ballot.Membership) (b *quorumlock.Backend, closeAll func()) {
	var members []driver.Backend
	var closers []func()
	for _, a := range addrs {
		m, c := member(a, of)
		members, closers = append(members, m), append(closers, c)
	}
	b = quorumlock.New(members, &quorumlock.Options{Names: addrs})
	return b, func() {
		b.Close()
		for _, c := range closers {
			c()
		}
	}
}

func addrs(all []*testserver.Server) []string {
	var s []string
	for _, one := range all {
		s = append(s, one.Addr())
	}
	return s
}

// open is quorumOf for a test.
func open(t *testing.T, all []*testserver.Server) *quorumlock.Backend {
	t.Helper()
	return openAs(t, all, membership)
}

func openAs(t *testing.T, all []*testserver.Server, of ballot.Membership) *quorumlock.Backend {
	t.Helper()
	b, end := quorumOf(addrs(all), of)
	t.Cleanup(end)
	return b
}

// ready starts n servers and says that they are new.
func ready(t *testing.T, n int, opts ...testserver.Option) []*testserver.Server {
	t.Helper()
	return readyAs(t, servers(t, n, opts...), membership)
}

// readyAs says that servers are new, and holds them to being empty in the end.
func readyAs(t *testing.T, all []*testserver.Server, of ballot.Membership) []*testserver.Server {
	t.Helper()
	b, end := quorumOf(addrs(all), of)
	err := b.Initialise(t.Context())
	end()
	steps.Must(t, err)
	t.Cleanup(func() { tidy(t, all) })
	return all
}

// tidy finds nothing of ours on any server that runs but counters, which have their
// end, and the memory of being a member: no claim, no connection, no subscription.
func tidy(t *testing.T, all []*testserver.Server) {
	t.Helper()
	for _, s := range all {
		if s.Pid() == 0 {
			continue
		}
		end := time.Now().Add(5 * time.Second)
		for {
			left := leftovers(t, s)
			if left == "" {
				break
			}
			if time.Now().After(end) {
				t.Errorf("on %s there is %s", s.Addr(), left)
				break
			}
			pause(50 * time.Millisecond)
		}
	}
}

func leftovers(t *testing.T, s *testserver.Server) string {
	t.Helper()
	for _, kind := range []string{"normal", "pubsub"} {
		list, err := s.Ask("CLIENT", "LIST", "TYPE", kind)
		if err != nil {
			return err.Error()
		}
		for line := range strings.Lines(list) {
			if strings.HasPrefix(line, "id=") && !strings.Contains(line, "cmd=client") { // that is who asks
				return "a connection: " + line
			}
		}
	}
	b, end := member(s.Addr(), membership)
	defer end()
	defer b.Close()
	for l, err := range b.Lines(context.Background(), "") {
		if err != nil || len(l.Claims) > 0 {
			return fmt.Sprintf("%+v, %v", l, err)
		}
	}
	keys, err := s.Ask("KEYS", "*")
	if err != nil {
		return err.Error()
	}
	for key := range strings.FieldsSeq(keys) {
		if ttl, err := s.Ask("PTTL", key); key != "fencelock:@member" && (err != nil || ttl == "-1") {
			return fmt.Sprintf("%s, which does not expire, %v", key, err)
		}
	}
	return ""
}

// pause lets time pass between two looks, or between two renewals.
func pause(d time.Duration) { <-time.After(d) } // real time: as above

// client opens a Client on the servers.
func client(t *testing.T, all []*testserver.Server, ttl time.Duration) *fencelock.Client {
	t.Helper()
	return clientAs(t, all, ttl, membership)
}

func clientAs(t *testing.T, all []*testserver.Server, ttl time.Duration, of ballot.Membership) *fencelock.Client {
	t.Helper()
	b, end := quorumOf(addrs(all), of)
	c := testclient.New(t, b, &fencelock.Options{TTL: ttl, HandOff: 1})
	t.Cleanup(func() {
		c.Close()
		end()
	})
	return c
}

// free takes and releases key, within a time.
func free(t *testing.T, c *fencelock.Client, key string, within time.Duration) *fencelock.Lease {
	t.Helper()
	start := time.Now()
	l, err := c.Lock(t.Context(), key, fencelock.Wait(within))
	if err != nil {
		t.Fatalf("locking %q within %v: %v", key, within, err)
	}
	t.Logf("locked %q after %v", key, time.Since(start).Round(time.Millisecond))
	steps.Must(t, l.Release(t.Context()))
	return l
}

var lock = testclient.Lock

// lost waits until a lease is lost, and returns when that was and why.
func lost(t *testing.T, l *fencelock.Lease, within time.Duration) time.Time {
	t.Helper()
	select {
	case <-l.Context().Done():
		steps.Is(t, "the lease", context.Cause(l.Context()), fencelock.ErrLost)
		return time.Now()
	case <-time.After(within):
		t.Fatalf("the lease is not lost after %v", within)
		return time.Time{}
	}
}

// ballotOn is a claim with the clock for its ballot.
func ballotOn(key string) driver.Claim {
	return driver.Claim{
		Key: key, ID: rand.Text(), Capacity: driver.RW, Weight: driver.RW,
		TTL: time.Minute, NoWait: true, Span: 1, Ballot: time.Now().UnixMicro(),
	}
}
