package zklock

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Workers are this test binary again, as processes of their own: a goroutine cannot
// be stopped or killed alone.

// order is what a worker is to do. It comes as JSON in an environment variable.
type order struct {
	Do      string // hold, queue or renew
	Servers []string
	Key     string
	Prefix  string
	Session time.Duration
}

const orderVariable = "FENCELOCK_TEST_ORDER"

// worker runs the order of the environment, and returns false if there is none.
func worker() bool {
	text := os.Getenv(orderVariable)
	if text == "" {
		return false
	}
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fail(err)
	}
	b := New(o.Servers, &Options{Prefix: o.Prefix, SessionTimeout: o.Session})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := driver.Claim{
		Key: o.Key, ID: fmt.Sprint("worker ", os.Getpid()), Owner: "a worker",
		Capacity: driver.RW, Weight: driver.RW, TTL: b.Info().MaxTTL, Span: 1,
	}
	k, err := b.Enter(ctx, c)
	if err != nil {
		fail(err)
	}
	fmt.Println("entered", k.Granted)
	for !k.Granted {
		if k, err = b.Await(ctx, k); err != nil {
			fail(err)
		}
	}
	fmt.Println("held", k.Token)
	if o.Do == "renew" {
		// A connection that broke, and a session still on its way, are no answer.
		for !driver.Gone(err) && ctx.Err() == nil {
			<-time.NewTimer(k.TTL / 5).C
			err = b.Renew(ctx, []driver.Ticket{k})[0]
		}
		fmt.Println("renew", driver.Gone(err), err)
	} else {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	}
	// The new session may still be on its way: that is no answer, and the core asks again.
	for err = b.Leave(ctx, k, driver.Exit{}); err != nil && !driver.Gone(err) && ctx.Err() == nil; err = b.Leave(ctx, k, driver.Exit{}) {
		<-time.NewTimer(20 * time.Millisecond).C
	}
	fmt.Println("left", err == nil, driver.Gone(err))
	b.Close()
	return true
}

func fail(err error) {
	fmt.Println("error", err)
	os.Exit(1)
}

// process is a worker as its parent sees it.
type process struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out chan string // lines
	end chan error
}

// start starts a worker that ends with the test at the latest.
func start(t testing.TB, o order) *process {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(os.Args[0]), out: make(chan string, 100), end: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), orderVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			p.out <- lines.Text()
		}
		close(p.out)
		p.end <- p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		p.in.Close()
	})
	return p
}

// hears waits for a line that begins with word, and returns the rest of it.
func (p *process) hears(word string) string {
	p.t.Helper()
	select {
	case line, ok := <-p.out:
		rest, is := strings.CutPrefix(line, word)
		if !ok || !is {
			p.t.Fatalf("the worker said %q; want %q", line, word)
		}
		return strings.TrimSpace(rest)
	case <-after(30 * time.Second):
		p.t.Fatalf("the worker did not say %q within 30s", word)
	}
	return ""
}

// tell sends a line.
func (p *process) tell() { fmt.Fprintln(p.in) }

// kill ends the worker as kill -9 does, and waits until it is gone.
func (p *process) kill() {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("kill: %v", err)
	}
	if p.end != nil {
		<-p.end
		p.end = nil
	}
}
