package torture

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/verify/traffic"
)

// worker is one place for worker processes, which has one after the other. Its methods
// are called by one goroutine.
type worker struct {
	number  int
	life    int
	order   traffic.Order
	command []string
	rec     *traffic.Recorder
	proxies []*faultproxy.Proxy

	now *process
}

// process is one worker process.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{}

	mu       sync.Mutex
	expected bool // its end is our doing
	err      error
}

// start starts the next process of this place.
func (w *worker) start() error {
	w.life++
	o := w.order
	o.Proc = fmt.Sprintf("w%d.%d", w.number, w.life)
	o.Seed += uint64(w.number)<<32 + uint64(w.life)
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	p := &process{name: o.Proc, cmd: exec.Command(w.command[0], w.command[1:]...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), traffic.Variable+"="+string(text))
	p.cmd.SysProcAttr = dieWithParent()
	log := filepath.Join(o.Dir, o.Proc+".log")
	out, err := os.Create(log)
	if err != nil {
		return err
	}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		out.Close()
		return err
	}
	started := make(chan error)
	go func() {
		// The kernel ends the process with the thread that has started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		defer out.Close()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = p.cmd.Wait()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("starting a worker: %w", err)
	}
	w.now = p
	w.rec.Write(traffic.Line{Op: traffic.Started, Proc: p.name})
	return nil
}

// Kill ends the process as kill -9 does, and starts another.
func (w *worker) Kill() error {
	if err := w.end(); err != nil {
		return err
	}
	return w.start()
}

// end kills the process, and returns when it is gone.
func (w *worker) end() error {
	w.expect()
	if err := w.now.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-w.now.done
	w.rec.Write(traffic.Line{Op: traffic.Crash, Proc: w.now.name})
	return nil
}

// expect notes that the process is about to end. If it has ended before, that is odd.
func (w *worker) expect() {
	p := w.now
	select {
	case <-p.done:
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.expected {
			w.odd("worker: %s ended by itself: %v; it said:\n%s", p.name, p.err, w.said())
		}
		p.expected = true
	default:
		p.mu.Lock()
		p.expected = true
		p.mu.Unlock()
	}
}

func (w *worker) odd(format string, args ...any) {
	w.rec.Write(traffic.Line{Op: traffic.Odd, Proc: w.now.name, Text: fmt.Sprintf(format, args...)})
}

func (w *worker) said() string {
	text, _ := os.ReadFile(filepath.Join(w.order.Dir, w.now.name+".log"))
	if len(text) > 2000 {
		text = text[len(text)-2000:]
	}
	return strings.TrimSpace(string(text))
}

// Stop stops the process in its tracks.
func (w *worker) Stop() error {
	w.rec.Write(traffic.Line{Op: traffic.Stop, Proc: w.now.name})
	return gone(stopProcess(w.now.cmd.Process))
}

// Resume lets it go on.
func (w *worker) Resume() error {
	err := gone(resumeProcess(w.now.cmd.Process))
	w.rec.Write(traffic.Line{Op: traffic.Resume, Proc: w.now.name})
	return err
}

// gone is nil for a process that has ended: expect says so.
func gone(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// discard ends the process without a word.
func (w *worker) discard() {
	if w.now == nil {
		return
	}
	w.now.mu.Lock()
	w.now.expected = true
	w.now.mu.Unlock()
	_ = w.now.cmd.Process.Kill()
	<-w.now.done
}

// Proxies are those of this place.
func (w *worker) Proxies() []*faultproxy.Proxy { return w.proxies }

// askToEnd tells the process to give back what it holds, and to end.
func (w *worker) askToEnd() {
	w.expect()
	w.now.in.Close()
}

// finish waits until a process that was told to has ended.
func (w *worker) finish(patience time.Duration) error {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-w.now.done:
		if p := w.now; p.err != nil {
			w.odd("worker: %s failed: %v; it said:\n%s", p.name, p.err, w.said())
		}
		return nil
	case <-t.C:
		w.odd("hang: %s has not ended %v after it was asked to", w.now.name, patience)
		return w.end()
	}
}
