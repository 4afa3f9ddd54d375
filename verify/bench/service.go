package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

// The service beside the library, on one Redis. Each locker has a process of fencelock serve
// of its own, so that two processes which contend are two clients of two instances.
func service() []part {
	free := own("service free", "A free lock through the service: one client, processors kept awake", 1, 100,
		serviceFreeColumns).over(ours, ours)
	free.awake, free.warm = true, true
	handover := contested("service hand-over",
		"Hand-over between two processes, each held for 2 ms, processors kept awake", 600, ours)
	handover.columns, handover.size, handover.processes, handover.hold = handOverColumns, 2, 2, 2*time.Millisecond
	handover.awake, handover.rounds = true, 2
	waiting := part{name: "service waiting", title: "5000 clients that come at once and wait for one lock",
		size: 5000, columns: waitingColumns, rounds: 0.6, length: 3 * time.Second, turn: (*Bench).waiting}
	slowly := waiting
	slowly.name, slowly.title = "service slowly", "5000 clients that come within ten seconds"
	slowly.settle = 10 * time.Second
	return []part{free, handover, waiting, slowly}
}

// serving is a process of fencelock serve.
type serving struct {
	cmd  *exec.Cmd
	done <-chan struct{}
	addr string
}

// buildServe builds the command.
func buildServe(ctx context.Context, dir string) (path string, err error) {
	path = filepath.Join(dir, "fencelock")
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/fencelock/fencelock/cmd/fencelock")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the command fencelock: %w\n%s", err, out)
	}
	return path, nil
}

// startServing returns when the process serves. The audit goes to its output, which nobody
// reads.
func startServing(e Env) (*serving, error) {
	s := &serving{cmd: exec.Command(e.Serve, "serve", "--listen", "127.0.0.1:0", "--max-waiting", "10000")}
	s.cmd.Env = append(os.Environ(), "FENCELOCK_URL="+e.URL)
	says, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if s.done, err = testserver.Spawn(s.cmd); err != nil {
		return nil, fmt.Errorf("starting fencelock serve: %w", err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(says); lines.Scan(); {
		if _, addr, ok := strings.Cut(lines.Text(), " at http://"); ok {
			s.addr = addr
			return s, nil
		}
		fmt.Fprintln(&said, lines.Text())
	}
	return nil, errors.Join(fmt.Errorf("fencelock serve has ended before it served: %s", &said), s.stop())
}

func (s *serving) stop() error {
	err := s.cmd.Process.Kill()
	<-s.done
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// resident is how much of the memory of the machine the process has, in bytes. Only Linux
// says so in this way.
func (s *serving) resident() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "\nVmRSS:")
	kib, err := strconv.ParseFloat(strings.Fields(rest + " none")[0], 64)
	return 1024 * kib, err
}

// openServe opens a client of a process of its own. wait is what it sends with acquire.
func openServe(wait string) opener {
	return func(e Env) (Locker, error) {
		s, err := startServing(e)
		if err != nil {
			return nil, err
		}
		return (&httpClient{addr: s.addr}).library(e, wait, s.stop), nil
	}
}

// library locks through the service. wait is what it sends with acquire, stop ends the service.
func (c *httpClient) library(e Env, wait string, stop func() error) Locker {
	acquire := fmt.Sprintf(`{"key":%%q,"ttl":%q%s}`, e.TTL, wait)
	return &library[grantedLock]{
		lock: func(ctx context.Context, key string) (g grantedLock, err error) {
			return g, c.post(ctx, "/v1/acquire", fmt.Sprintf(acquire, key), &g)
		},
		unlock: func(ctx context.Context, _ string, g grantedLock) error {
			return c.post(ctx, "/v1/release", fmt.Sprintf(`{"handle":%q}`, g.Handle), nil)
		},
		token: func(g grantedLock) int64 { return g.Token },
		close: func() error {
			c.close()
			return stop()
		},
	}
}

// serveFloor answers over HTTP with what a lock costs at least: net/http, encoding/json, and
// the commands of the floor.
func serveFloor(e Env, peer Peer) error {
	locker, err := peer.Open(e)
	if err != nil {
		return err
	}
	raw, ok := locker.(*library[struct{}])
	if !ok {
		return fmt.Errorf("%s cannot be served", peer.Name)
	}
	answer := func(do func(ctx context.Context, key string) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var q struct{ Key, Handle string }
			err := json.NewDecoder(r.Body).Decode(&q)
			if err = errors.Join(err, do(r.Context(), q.Key+q.Handle)); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(grantedLock{Handle: q.Key})
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/acquire", answer(func(ctx context.Context, key string) error {
		_, err := raw.lock(ctx, key)
		return err
	}))
	mux.HandleFunc("POST /v1/release", answer(func(ctx context.Context, key string) error {
		return raw.unlock(ctx, key, struct{}{})
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	return errors.Join(report(l.Addr().String()), http.Serve(l, mux))
}

// openServedFloor opens a client of serveFloor, of a floor, in a process of its own.
func openServedFloor(name string) opener {
	return func(e Env) (Locker, error) {
		ctx, stop := context.WithCancel(context.Background())
		c := &httpClient{}
		child, err := startChild(ctx, job{Peer: name, Env: e, Serve: true})
		if err == nil {
			err = child.receive(&c.addr)
		}
		if err != nil {
			stop()
			return nil, err
		}
		return c.library(e, "", func() error {
			stop()
			_ = child.cmd.Wait() // it was killed
			return nil
		}), nil
	}
}

// grantedLock is what a client needs of the answer to acquire.
type grantedLock struct {
	Handle string `json:"handle"`
	Token  int64  `json:"token,string"`
}

// waiting is a turn of a fresh process with many clients that wait, and that come within
// p.settle. What the process has in memory after some renewals of their claims, and had not
// before, is theirs.
func (b *Bench) waiting(ctx context.Context, p part, _ Peer, _ []Locker) (_ Values, err error) {
	s, err := startServing(b.env())
	if err != nil {
		return nil, err
	}
	c, key := &httpClient{addr: s.addr}, b.key()
	var waiters []*httpConn
	defer func() {
		for _, w := range waiters {
			w.Close()
		}
		c.close()
		err = errors.Join(err, s.stop())
	}()
	holder := grantedLock{}
	if err := c.post(ctx, "/v1/acquire", fmt.Sprintf(`{"key":%q,"ttl":"10m"}`, key), &holder); err != nil {
		return nil, err
	}
	before, err := s.resident()
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	for i := range p.size {
		if p.settle > 0 {
			time.Sleep(time.Until(begun.Add(p.settle * time.Duration(i) / time.Duration(p.size))))
		}
		w, err := c.wait(ctx, key)
		if err != nil {
			return nil, err
		}
		waiters = append(waiters, w)
		if i == 0 { // it is first in line, and granted at the end
			err = c.untilWaiting(ctx, 1)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := c.untilWaiting(ctx, p.size); err != nil {
		return nil, err
	}
	joined := time.Since(begun)
	if err := pause(ctx, b.length(p)); err != nil {
		return nil, err
	}
	after, err := s.resident()
	if err != nil {
		return nil, err
	}
	if err := c.untilWaiting(ctx, p.size); err != nil { // nobody has lost its place meanwhile
		return nil, err
	}
	released := time.Now()
	if err := c.post(ctx, "/v1/release", fmt.Sprintf(`{"handle":%q}`, holder.Handle), nil); err != nil {
		return nil, err
	}
	err = waiters[0].receive(&holder)
	return Values{
		"waiter_kb": (after - before) / float64(p.size) / 1000, "first_ms": time.Since(released).Seconds() * 1000,
		"joined_per_s": float64(p.size) / joined.Seconds(),
	}, err
}

// httpClient is a client of the service. It sends from the goroutine that calls, over
// connections that it keeps, as the clients of most languages do: those of net/http have two
// goroutines more for each connection.
type httpClient struct {
	addr string

	mu   sync.Mutex
	idle []*httpConn
}

type httpConn struct {
	net.Conn
	in *bufio.Reader
}

func (c *httpClient) dial(ctx context.Context) (*httpConn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return nil, err
	}
	return &httpConn{conn, bufio.NewReaderSize(conn, 1024)}, nil
}

func (c *httpClient) take(ctx context.Context) (*httpConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.idle); n > 0 {
		conn := c.idle[n-1]
		c.idle = c.idle[:n-1]
		return conn, nil
	}
	return c.dial(ctx)
}

func (c *httpClient) give(conn *httpConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, conn)
}

func (c *httpClient) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.idle {
		conn.Close()
	}
}

// post sends a request and decodes the answer into v, if it is not nil.
func (c *httpClient) post(ctx context.Context, path, body string, v any) error {
	conn, err := c.take(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = errors.Join(conn.send(path, body), conn.receive(v))
	if !stop() || err != nil {
		conn.Close()
		return errors.Join(ctx.Err(), err)
	}
	c.give(conn)
	return nil
}

func (c *httpConn) send(path, body string) error {
	_, err := io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body)
	return err
}

func (c *httpConn) receive(v any) error {
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return err
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s", res.Status, text)
	case v == nil:
		return nil
	}
	return json.Unmarshal(text, v)
}

// wait opens a connection that waits for the lock of key.
func (c *httpClient) wait(ctx context.Context, key string) (*httpConn, error) {
	w, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.send("/v1/acquire", fmt.Sprintf(`{"key":%q,"wait":"5m"}`, key)); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// untilWaiting waits until n claims wait at the instance.
func (c *httpClient) untilWaiting(ctx context.Context, n int) error {
	want, text := fmt.Sprintf("\nfencelock_http_waiting %d\n", n), ""
	for begun := time.Now(); time.Since(begun) < patience; {
		res, err := http.Get("http://" + c.addr + "/metrics")
		if err != nil {
			return err
		}
		all, err := io.ReadAll(res.Body)
		res.Body.Close()
		if text = string(all); err != nil || strings.Contains(text, want) {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("%d clients do not wait after %v:\n%s", n, patience, text)
}
