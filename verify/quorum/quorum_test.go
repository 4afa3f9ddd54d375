// Package quorum_test holds package quorumlock to its promises on real servers.
package quorum_test

import (
	"context"
	"crypto/rand"
	"errors"
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
	testserver.Parallel(6)
	os.Exit(m.Run())
}

// hold is what a worker does with a quorum of the servers at these addresses.
func hold(addrs []string) error {
	b, end := quorumOf(addrs, lasting)
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

// lease is for claims whose end tests wait for.
const lease = 5 * time.Second

// lasting has claims last, and clients climb on one another's ballots in steps of half a minute. A test
// that needs the end of a quarantine has the servers believe in it.
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
func open(t *testing.T, all []*testserver.Server, of ballot.Membership) *quorumlock.Backend {
	t.Helper()
	b, end := quorumOf(addrs(all), of)
	t.Cleanup(end)
	return b
}

// ready says that servers are new, and holds them to being empty in the end.
func ready(t *testing.T, all []*testserver.Server, of ballot.Membership) []*testserver.Server {
	t.Helper()
	b, end := quorumOf(addrs(all), of)
	err := b.Initialise(t.Context())
	end()
	steps.Must(t, err)
	// Nothing of ours is on any server that runs but counters, which have their end, and the memory of being a
	// member: no claim, no connection, no subscription.
	t.Cleanup(func() {
		for _, s := range all {
			left := ""
			testserver.Eventually(t, 2*time.Minute, "nothing is left on "+s.Addr(), func() bool {
				now := ""
				if s.Pid() != 0 {
					now = leftovers(t, s)
				}
				if now != left {
					t.Logf("on %s there is %s", s.Addr(), now)
				}
				left = now
				return left == ""
			})
		}
	})
	return all
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
	b, end := member(s.Addr(), lasting)
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

// client opens a Client on the servers, with leases of ttl.
func client(t *testing.T, all []*testserver.Server, ttl time.Duration) *fencelock.Client {
	t.Helper()
	b, end := quorumOf(addrs(all), lasting)
	c := testclient.New(t, b, &fencelock.Options{TTL: ttl, HandOff: 1})
	t.Cleanup(func() {
		c.Close()
		end()
	})
	return c
}

// free takes and releases key. A Release whose answers are late is repeated in the background.
func free(t *testing.T, c *fencelock.Client, key string) *fencelock.Lease {
	t.Helper()
	l := lock(t, c, key, fencelock.Wait(time.Minute))
	if err := l.Release(t.Context()); !errors.Is(err, fencelock.ErrUnavailable) {
		steps.Must(t, err)
	}
	return l
}

var lock = testclient.Lock

var eventually = testserver.WithinAMinute

// lost waits until a lease is lost.
func lost(t *testing.T, l *fencelock.Lease) {
	t.Helper()
	eventually(t, "the lease is lost", func() bool { return l.Context().Err() != nil })
	steps.Is(t, "the lease", context.Cause(l.Context()), fencelock.ErrLost)
}

// endQuarantine has servers believe that their quarantines are over. They begin with a request, which try sends.
func endQuarantine(t *testing.T, all []*testserver.Server, try func()) {
	t.Helper()
	const long = `local note = redis.call('GET', KEYS[1])
		if note then redis.call('SET', KEYS[1], '1 1000000000000000' .. note:sub(19)) end
		return note and 1 or 0`
	for _, s := range all {
		eventually(t, "the quarantine of "+s.Addr()+" has begun", func() bool {
			try()
			return ask(t, s, "EVAL", long, "1", "fencelock:@member") == "1"
		})
	}
}

// ballotOn is a claim with the clock for its ballot.
func ballotOn(key string) driver.Claim {
	return driver.Claim{
		Key: key, ID: rand.Text(), Capacity: driver.RW, Weight: driver.RW,
		TTL: time.Minute, NoWait: true, Span: 1, Ballot: time.Now().UnixMicro(),
	}
}
