package redislock

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
)

// Workers are this test binary again, as processes of their own: a goroutine cannot be
// stopped or killed alone.

func TestMain(m *testing.M) {
	if text := os.Getenv(orderVariable); text != "" {
		if err := obey(text); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		// Most tests wait: for leases to end, for votes, for a Cluster to be ready.
		if err := flag.Set("test.parallel", "4"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

const orderVariable = "FENCELOCK_TEST_ORDER"

// order says what a worker is to do: lock Key, and then what its parent says.
type order struct {
	Store address
	Key   string
	TTL   time.Duration
}

// obey locks the key, and tells the parent: "waits", "held", and after each line from
// there what the lease says of itself.
func obey(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	rdb := o.Store.dial()
	defer rdb.Close()
	c := fencelock.New(New(rdb, nil), &fencelock.Options{
		TTL:   o.TTL,
		Hooks: fencelock.Hooks{Waiting: func(fencelock.Event) { fmt.Println("waits") }},
	})
	defer c.Close()
	lease, err := c.Lock(context.Background(), o.Key)
	if err != nil {
		return err
	}
	fmt.Println("held", lease.Token())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "look":
			// What it says at its first look, with no time to hear of anything.
			fmt.Println("lost", errors.Is(lease.Err(), fencelock.ErrLost))
		case "leave":
			fmt.Println("left", lease.Release(context.Background()))
			return nil
		}
	}
	return nil
}

// process is a worker.
type process struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func (g *group) spawn(key string, ttl time.Duration) *process {
	g.t.Helper()
	text, err := json.Marshal(order{Store: g.address(), Key: key, TTL: ttl})
	if err != nil {
		g.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), orderVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		g.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		g.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	p := &process{g.t, cmd, in, bufio.NewScanner(out)}
	g.t.Cleanup(p.kill)
	return p
}

// hears waits for a line that begins with a word, and returns the rest.
func (p *process) hears(word string) string {
	p.t.Helper()
	for p.out.Scan() {
		if rest, ok := strings.CutPrefix(p.out.Text(), word); ok {
			return strings.TrimSpace(rest)
		}
		if strings.HasPrefix(p.out.Text(), "error") {
			p.t.Fatalf("the worker says: %s", p.out.Text())
		}
	}
	p.t.Fatalf("the worker ended without saying %q: %v", word, p.out.Err())
	return ""
}

func (p *process) says(line string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// A killed holder's lock is free when its lease is over, and a killed waiter delays
// nobody for longer than its own.
func TestKilledProcessesOfGroups(t *testing.T) {
	t.Parallel()
	for name, start := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := start(t)
			const ttl = 1500 * time.Millisecond
			c := client(t, g, ttl, nil)

			holder := g.spawn("holder", ttl)
			holder.hears("held")
			head := g.spawn("holder", ttl)
			head.hears("waits")
			holder.kill()
			killed := time.Now()
			head.hears("held")
			if d := time.Since(killed); d > ttl+time.Second {
				t.Errorf("the next in line got the lock %v after its holder was killed; want at most %v", d, ttl+time.Second)
			}
			head.says("leave")
			head.hears("left <nil>")

			lease, err := c.Lock(t.Context(), "waiter")
			if err != nil {
				t.Fatal(err)
			}
			head = g.spawn("waiter", ttl)
			head.hears("waits")
			behind := g.spawn("waiter", ttl)
			behind.hears("waits")
			head.kill()
			killed = time.Now()
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			behind.hears("held")
			if d := time.Since(killed); d > ttl+time.Second {
				t.Errorf("a killed waiter held up the line for %v; want at most %v", d, ttl+time.Second)
			}
			behind.says("leave")
			behind.hears("left <nil>")
		})
	}
}
