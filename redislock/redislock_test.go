package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// The steps that are the same for every store.
var (
	must       = steps.Must
	ok         = steps.OK
	mutex      = steps.Claim
	slots      = steps.Permits
	enter      = steps.Enter
	hold       = steps.Hold
	wait_      = steps.Wait
	tookAtMost = steps.TookAtMost
	wantGone   = steps.Gone
	noWait     = steps.NoWait
	leave      = steps.Leave
	inLine     = steps.InLine
	renew      = steps.Renew
	eventually = testserver.WithinAMinute
)

// TestLaws holds the backend to the laws of package driver.
func TestLaws(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	laws(t, func(t *testing.T) driver.Backend { return connect(t, s, nil) })
}

func laws(t *testing.T, open drivertest.Opener) {
	drivertest.Run(t, open, drivertest.ExpiryLag(50*time.Millisecond))
	drivertest.Model(t, func(t *testing.T) driver.Backend { return sendsAgain{open(t).(*Backend)} })
}

// sendsAgain says when a request is sent twice at the earliest.
type sendsAgain struct{ *Backend }

func (sendsAgain) SendsAgainAfter() time.Duration { return nearTimeout }

// newServer starts a Redis for a test. When what the test has opened is closed, nobody
// may be connected to it.
func newServer(t testing.TB, opts ...testserver.Option) *testserver.Server {
	t.Helper()
	s := testserver.Redis(t, opts...)
	t.Cleanup(func() { deserted(t, s) })
	return s
}

// deserted holds a server, if it runs, to having no connection and no subscription left.
func deserted(t testing.TB, s *testserver.Server) {
	t.Helper()
	if t.Failed() || s.Pid() == 0 {
		return
	}
	for _, kind := range []string{"normal", "pubsub"} {
		eventually(t, "no "+kind+" client is left at "+s.Addr(), func() bool {
			list, err := s.Ask("CLIENT", "LIST", "TYPE", kind)
			for l := range strings.Lines(list) {
				if strings.HasPrefix(l, "id=") && !strings.Contains(l, "cmd=client") {
					return false
				}
			}
			return err == nil
		})
	}
}

// connect opens a Backend with a client of its own.
func connect(t testing.TB, s *testserver.Server, o *Options) *Backend {
	t.Helper()
	return closing(t, New(dial(t, s), o))
}

// patient opens a Backend that waits for each answer, however late: it sends no request twice.
func patient(t testing.TB, addr string, o *Options) *Backend {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: time.Hour})
	t.Cleanup(func() { rdb.Close() })
	b := closing(t, New(rdb, o))
	b.transport.queueOf(rdb).near = rdb
	return b
}

// served starts a server, and opens a Backend and a client of the server itself.
func served(t testing.TB) (*testserver.Server, *Backend, *redis.Client) {
	t.Helper()
	s := newServer(t)
	return s, connect(t, s, nil), dial(t, s)
}

func closing(t testing.TB, b *Backend) *Backend {
	t.Cleanup(func() { b.Close() })
	return b
}

func dial(t testing.TB, s *testserver.Server) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// rights is what the comment of New says that the user needs.
const rights = lockRights + " +xadd +xdel +xrange +xrevrange" // for a history

const lockRights = "+eval +evalsha +time +hget +hmget +hset +hdel +hgetall +exists +get +set +pttl " +
	"+zadd +zrem +zrank +zcard +zrange +pexpireat +persist +publish +subscribe +ping +scan"

// restrict makes a user that may do what New says, and no more.
func restrict(t testing.TB, s *testserver.Server, more ...string) {
	t.Helper()
	line := "ACL SETUSER locks on >secret resetkeys ~fencelock:* resetchannels &fencelock:* -@all " + rights
	ask(t, s, append(aclLine(t, s, line), more...)...)
}

// aclLine returns the words of a command that makes a user. Redis before 6.2 has no rights
// for channels.
func aclLine(t testing.TB, s *testserver.Server, line string) (words []string) {
	t.Helper()
	for _, word := range strings.Fields(line) {
		if isSince(t, s, 6, 2) || word != "resetchannels" && word[0] != '&' {
			words = append(words, word)
		}
	}
	return words
}

// isSince reports whether a server is of that version of Redis, or newer.
func isSince(t testing.TB, s *testserver.Server, major, minor int) bool {
	t.Helper()
	info, err := s.Ask("INFO", "server")
	_, version, _ := strings.Cut(info, "redis_version:")
	var is [2]int
	if err == nil {
		_, err = fmt.Sscanf(version, "%d.%d", &is[0], &is[1])
	}
	if err != nil {
		t.Fatalf("the version of the server: %v", err)
	}
	return slices.Compare(is[:], []int{major, minor}) >= 0
}

func dialLocks(t testing.TB, s *testserver.Server) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "locks", Password: "secret"})
	t.Cleanup(func() { c.Close() })
	return c
}

// cluster starts a Cluster of one node: it refuses a script whose keys are in two
// slots, and keys that a script does not declare.
func cluster(t testing.TB) *testserver.Server {
	t.Helper()
	return clusterOf(t, 1)[0]
}

// clusterOf starts a Cluster of n masters, in order of their slots.
func clusterOf(t testing.TB, n int) []*testserver.Server {
	t.Helper()
	var nodes []*testserver.Server
	for i := range n {
		s := newServer(t, testserver.Config("cluster-enabled yes", "cluster-config-file nodes.conf",
			"cluster-node-timeout 60000", "cluster-require-full-coverage no"))
		ask(t, s, testserver.AddSlots(firstSlot(i, n), firstSlot(i+1, n))...)
		if i > 0 {
			host, port, _ := net.SplitHostPort(nodes[0].Addr())
			ask(t, s, "CLUSTER", "MEET", host, port)
		}
		nodes = append(nodes, s)
	}
	for _, s := range nodes {
		eventually(t, "the cluster serves", func() bool {
			info, err := s.Ask("CLUSTER", "INFO")
			return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_assigned:16384")
		})
	}
	return nodes
}

// firstSlot returns the first slot of the i-th of n masters.
func firstSlot(i, n int) int { return 16384 * i / n }

func dialCluster(t testing.TB, s *testserver.Server) *redis.ClusterClient {
	t.Helper()
	o := &redis.ClusterOptions{Addrs: []string{s.Addr()}}
	if users, err := s.Ask("ACL", "USERS"); err == nil && strings.Contains(users, "locks") {
		o.Username, o.Password = "locks", "secret"
	}
	c := redis.NewClusterClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// ask sends one command to a server.
func ask(t testing.TB, s *testserver.Server, words ...string) string {
	t.Helper()
	answer, err := s.Ask(words...)
	must(t, err)
	return answer
}

// granted awaits a grant. Each new call may read the line, so it makes no more of them than it has to.
func granted(t testing.TB, b *Backend, k driver.Ticket) {
	t.Helper()
	for ctx := steps.Soon(t); !k.Granted; {
		now, err := b.Await(ctx, k)
		if err != nil {
			t.Errorf("Await on %q: %v", k.Key, err)
			return
		}
		k = now
	}
}

// onlyPushed has b read no line by itself for longer than granted waits.
func onlyPushed(b *Backend) *Backend {
	b.fallback = time.Hour
	return b
}

// subscribed waits until the Backend's subscription is confirmed.
func subscribed(t testing.TB, b *Backend) {
	t.Helper()
	eventually(t, "the subscription is there", func() bool { return b.subscriber.epoch.Load() != 0 })
}

// parked waits until somebody waits for a push for the claim of k.
func parked(t testing.TB, b *Backend, k driver.Ticket) {
	t.Helper()
	eventually(t, "somebody waits for the push", func() bool {
		b.waiters.mu.Lock()
		defer b.waiters.mu.Unlock()
		c := b.waiters.byID[k.ID]
		return c != nil && c.changed != nil
	})
}

func line(t testing.TB, b *Backend, key string) driver.Line {
	t.Helper()
	l, err := b.Line(context.Background(), key)
	if err != nil {
		t.Fatalf("Line of %q: %v", key, err)
	}
	return l
}

// noticed waits until the client of b reaches the server again.
func noticed(t testing.TB, b *Backend) {
	t.Helper()
	eventually(t, "the client has noticed", func() bool { return steps.ErrOf(b.Line(t.Context(), "key")) == nil })
}

// permanent reports whether err says that asking again is useless.
func permanent(err error) bool {
	return errors.Is(err, driver.ErrPermanent)
}
