//go:build unix

package serve_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/go-redis/v9"
)

// instance is one process of fencelock serve, started again whenever it is killed.
type instance struct {
	t       *testing.T
	command string
	store   string
	flags   []string     // beside those that all have
	addr    atomic.Value // of the process, or of the one before it

	cmd  *exec.Cmd
	done <-chan struct{} // closed when the process has ended
}

// start starts the process and returns when it serves.
func (i *instance) start() {
	flags := []string{"serve", "--listen", "127.0.0.1:0", "--max-waiting", "100", "--audit", os.DevNull}
	i.cmd = exec.Command(i.command, append(flags, i.flags...)...)
	i.cmd.Env = append(os.Environ(), "FENCELOCK_URL="+i.store)
	messages, err := i.cmd.StderrPipe()
	if err != nil {
		i.t.Error(err)
		return
	}
	if i.done, err = testserver.Spawn(i.cmd); err != nil {
		i.t.Error(err)
		return
	}
	for s := bufio.NewScanner(messages); s.Scan(); {
		if _, at, ok := strings.Cut(s.Text(), " at http://"); ok {
			i.addr.Store(at)
			go func() {
				for s.Scan() {
				}
			}()
			return
		}
		i.t.Log(s.Text())
	}
	i.t.Error("the server has ended before it served")
}

// kill ends the process with SIGKILL.
func (i *instance) kill() {
	_ = i.cmd.Process.Kill()
	<-i.done
}

var commands string // the folder of the command that is tested

func TestMain(m *testing.M) {
	testserver.Parallel(4)
	var err error
	if commands, err = os.MkdirTemp("", "fencelock-serve"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(commands)
	os.Exit(code)
}

var built = sync.OnceValue(func() error {
	build := exec.Command("go", "build", "-o", commands, ".")
	build.Dir = filepath.Join("..", "..", "cmd", "fencelock")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building fencelock: %w\n%s", err, out)
	}
	return nil
})

// buildCommand builds fencelock, once.
func buildCommand(t *testing.T) string {
	t.Helper()
	steps.Must(t, built())
	return filepath.Join(commands, "fencelock")
}

// balance is a balancer before two servers: it takes them in turn, and knows nothing of them.
func balance(t *testing.T, servers []*instance) string {
	var n atomic.Int64
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			addr := servers[int(n.Add(1))%len(servers)].addr.Load().(string)
			r.SetURL(&url.URL{Scheme: "http", Host: addr})
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
	})
	return proxy.URL
}

// stage is two servers on one Redis behind a balancer, and what their clients have seen.
type stage struct {
	*testing.T
	url    string
	store  *fencelock.Client // to look at the lines
	http   *http.Client
	inside [keys]atomic.Int32
	last   [keys]atomic.Int64 // the newest token
	grants atomic.Int64
	kills  atomic.Int64
}

const (
	keys     = 3
	patience = 10 * time.Minute // with what must happen
)

// Of two servers one is killed every two seconds: no two clients are inside at once, tokens
// rise, and those who wait keep their places. FENCELOCK_SERVE=1m is how long, at least.
func TestServersThatAreKilledLoseNobody(t *testing.T) {
	t.Parallel()
	redisServer := testserver.Redis(t)
	command := buildCommand(t)
	killFor, _ := time.ParseDuration(os.Getenv("FENCELOCK_SERVE"))
	servers := []*instance{}
	for range 2 {
		i := &instance{t: t, command: command, store: redisServer.URL()}
		i.start()
		t.Cleanup(i.kill)
		servers = append(servers, i)
	}
	options, err := redis.ParseURL(redisServer.URL())
	steps.Must(t, err)
	rdb := redis.NewClient(options)
	defer rdb.Close()
	looker := testclient.New(t, redislock.New(rdb, nil), nil)
	s := &stage{T: t, url: balance(t, servers), store: looker, http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 100},
	}}
	defer s.http.CloseIdleConnections()

	running, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	for i := range 4 * keys {
		all.Go(func() { s.worker(running, i) })
	}
	all.Go(func() { s.queues(running) })
	for begun := time.Now(); s.kills.Load() < 4 || s.grants.Load() < 100 || time.Since(begun) < killFor; s.kills.Add(1) {
		pauseOrEnd(running, 2*time.Second)
		if t.Failed() {
			break
		}
		victim := servers[s.kills.Load()%2]
		victim.kill()
		victim.start()
	}
	stop()
	all.Wait()
	t.Logf("%d kills, %d grants", s.kills.Load(), s.grants.Load())
}

// worker takes one key again and again.
func (s *stage) worker(running context.Context, n int) {
	c := &client{s.url, fmt.Sprint("worker-", n), s.http}
	key := n % keys
	for round := 0; running.Err() == nil; round++ {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		h, err := c.acquire(ctx, fmt.Sprint("key-", key), fmt.Sprintf("wish-%d-%d", n, round), time.Minute)
		if err != nil {
			s.Errorf("%s: %v", c.name, err)
			cancel()
			return
		}
		s.work(key, h)
		if err := c.release(ctx, h); err != nil && !time.Now().After(h.until) {
			s.Errorf("%s: %v", c.name, err)
		}
		cancel()
	}
}

// work is inside for a few milliseconds, as long as the client believes in its lock.
func (s *stage) work(key int, h *held) {
	if time.Now().After(h.until) {
		return
	}
	steps.Same(s, "how many clients are inside", s.inside[key].Add(1), 1)
	if before := s.last[key].Swap(h.token()); before >= h.token() {
		s.Errorf("token %d after %d", h.token(), before)
	}
	s.grants.Add(1)
	time.Sleep(5 * time.Millisecond) // real time: work under the lock
	s.inside[key].Add(-1)
}

// queues has clients wait in a known order, and looks whether they are granted in it.
func (s *stage) queues(running context.Context) {
	const length = 6
	for round := 0; running.Err() == nil; round++ {
		key := fmt.Sprint("queue-", round)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		first := &client{s.url, "first", s.http}
		holder, err := first.acquire(ctx, key, fmt.Sprint("first-wish-", round), patience)
		if err != nil {
			s.Error(err)
			cancel()
			return
		}
		order := make(chan int, length)
		var all sync.WaitGroup
		for i := range length {
			all.Go(func() {
				c := &client{s.url, fmt.Sprint("waiter-", i), s.http}
				h, err := c.acquire(ctx, key, fmt.Sprintf("place-%d-%d", round, i), patience)
				if err != nil {
					s.Errorf("%s: %v", c.name, err)
					return
				}
				order <- i
				if err := c.release(ctx, h); err != nil {
					s.Errorf("%s: %v", c.name, err)
				}
			})
			s.untilWaiting(ctx, key, i+1)
		}
		for before := s.kills.Load(); s.kills.Load() < before+2 && running.Err() == nil; { // each server is killed
			pauseOrEnd(running, 20*time.Millisecond)
		}
		steps.OK(s, first.release(ctx, holder))
		all.Wait()
		cancel()
		close(order)
		want := 0
		for i := range order {
			if i != want {
				s.Errorf("round %d: waiter %d was granted, want %d", round, i, want)
			}
			want++
		}
	}
}

// waiters is how many claims of l wait.
func waiters(l *fencelock.Line) (n int) {
	for _, c := range l.Claims {
		if !c.Granted {
			n++
		}
	}
	return n
}

// untilWaiting waits until n wait for key.
func (s *stage) untilWaiting(ctx context.Context, key string, n int) {
	for ctx.Err() == nil {
		l, err := s.store.Line(ctx, key)
		if err == nil && waiters(&l) == n {
			return
		}
		pauseOrEnd(ctx, 2*time.Millisecond)
	}
	s.Errorf("%s: never %d waiters", key, n)
}
