package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Process is a worker as its parent sees it.
type Process struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  chan string // lines
	done chan error  // gets one value
	over bool        // done has been read
}

// patience is how long a worker may take to say what a test waits for.
const patience = time.Minute

// Start starts a worker for an order. It ends with the test at the latest.
func Start(t testing.TB, order any) *Process {
	t.Helper()
	cmd, err := Command(context.Background(), order)
	p := &Process{t: t, cmd: cmd, out: make(chan string, 10_000), done: make(chan error, 1)}
	var err2 error
	p.in, err2 = cmd.StdinPipe()
	out, err3 := cmd.StdoutPipe()
	if err := errors.Join(err, err2, err3, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.out <- lines.Text()
		}
		close(p.out)
		p.done <- p.cmd.Wait()
	}()
	t.Cleanup(p.Kill)
	return p
}

// Hears waits for the next line, which begins with word, and returns the rest of it.
func (p *Process) Hears(word string) string {
	p.t.Helper()
	rest, before := p.Until(word)
	if len(before) > 0 {
		p.t.Fatalf("the worker said %q before %q", before, word)
	}
	return rest
}

// Until waits for a line that begins with word. It returns the rest of that line and the
// lines before.
func (p *Process) Until(word string) (rest string, before []string) {
	p.t.Helper()
	for limit := time.After(patience); ; {
		line := "nothing more in time"
		select {
		case line = <-p.out: // "" when the worker has ended
		case <-limit:
		}
		if rest, is := strings.CutPrefix(line, word); is {
			return strings.TrimSpace(rest), before
		}
		if line == "" || strings.HasPrefix(line, "error") || strings.HasPrefix(line, "nothing more") {
			p.t.Fatalf("the worker did not say %q; it said %q, and then %q", word, before, line)
		}
		before = append(before, line)
	}
}

// Held waits until the worker says that it holds the lock.
func (p *Process) Held() (token int64, at time.Time) {
	p.t.Helper()
	var ns int64
	text := p.Hears("held")
	if _, err := fmt.Sscan(text, &token, &ns); err != nil {
		p.t.Fatalf("the worker holds %q: %v", text, err)
	}
	return token, time.Unix(0, ns)
}

// Tell sends a line to the worker.
func (p *Process) Tell(words ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, words...); err != nil {
		p.t.Fatal(err)
	}
}

// Signal sends a signal to the worker.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %v: %v", s, err)
	}
}

// Kill ends the worker as kill -9 does, and waits until it is gone.
func (p *Process) Kill() {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("kill: %v", err)
	}
	_ = p.end()
}

// Succeeds waits for the worker to end well.
func (p *Process) Succeeds() {
	p.t.Helper()
	var last string
	for line := range p.out {
		last = line
	}
	if err := p.end(); err != nil {
		p.t.Fatalf("the worker ended with %v; its last words were %q", err, last)
	}
}

// end waits for the end of the worker.
func (p *Process) end() error {
	if p.over {
		return nil
	}
	p.over = true
	for range p.out { // or it may wait for a reader
	}
	defer p.in.Close()
	return <-p.done
}
