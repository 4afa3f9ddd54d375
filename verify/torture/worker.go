package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
	process "github.com/fencelock/fencelock/internal/worker"
	"github.com/fencelock/fencelock/verify/traffic"
)

// worker is one place for worker processes, which has one after the other. Its methods
// are called by one goroutine.
type worker struct {
	number  int
	life    int
	order   traffic.Order
	rec     *traffic.Recorder
	proxies []*faultproxy.Proxy

	// The present process:
	name     string
	cmd      *exec.Cmd
	in       io.Writer
	done     <-chan struct{}
	expected bool // its end is our doing
}

// start starts the next process of this place: this program, with an order.
func (w *worker) start() error {
	w.life++
	o := w.order
	o.Proc = fmt.Sprintf("w%d.%d", w.number, w.life)
	o.Seed += uint64(w.number)<<32 + uint64(w.life)
	log, err := os.Create(filepath.Join(o.Dir, o.Proc+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd, err := process.Command(context.Background(), o)
	cmd.Stdout, cmd.Stderr = log, log
	in, err2 := cmd.StdinPipe()
	done, err3 := testserver.Spawn(cmd)
	if err := errors.Join(err, err2, err3); err != nil {
		return fmt.Errorf("starting a worker: %w", err)
	}
	w.name, w.cmd, w.in, w.done, w.expected = o.Proc, cmd, in, done, false
	w.write(traffic.Line{Op: traffic.Started})
	return nil
}

// write writes a line about the present process.
func (w *worker) write(l traffic.Line) {
	l.Proc = w.name
	w.rec.Write(l)
}

// kill ends the process as kill -9 does, and starts another.
func (w *worker) kill() error {
	if err := w.end(); err != nil {
		return err
	}
	return w.start()
}

// end kills the process, and returns when it is gone.
func (w *worker) end() error {
	w.expect()
	if err := w.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-w.done
	w.write(traffic.Line{Op: traffic.Crash})
	return nil
}

// expect notes that the process is about to end. If it has ended before, that is odd.
func (w *worker) expect() {
	select {
	case <-w.done:
		if !w.expected {
			w.odd("worker: %s ended by itself: %v; it said:\n%s", w.name, w.cmd.ProcessState, w.said())
		}
	default:
	}
	w.expected = true
}

func (w *worker) odd(format string, args ...any) {
	w.write(traffic.Line{Op: traffic.Odd, Text: fmt.Sprintf(format, args...)})
}

func (w *worker) said() string {
	text, _ := os.ReadFile(filepath.Join(w.order.Dir, w.name+".log"))
	return strings.TrimSpace(string(text[max(0, len(text)-2000):]))
}

// stop stops the process in its tracks.
func (w *worker) stop() error {
	w.write(traffic.Line{Op: traffic.Stop})
	return testserver.Pause(w.cmd.Process)
}

// resume lets it go on.
func (w *worker) resume() error {
	err := testserver.Resume(w.cmd.Process)
	w.write(traffic.Line{Op: traffic.Resume})
	return err
}

func (w *worker) between() []*faultproxy.Proxy { return w.proxies }

// askToEnd tells the process to give back what it holds, and to end.
func (w *worker) askToEnd() {
	w.expect()
	fmt.Fprintln(w.in)
}

// finish waits until a process that was told to has ended.
func (w *worker) finish(patience time.Duration) error {
	select {
	case <-w.done:
		if how := w.cmd.ProcessState; !how.Success() {
			w.odd("worker: %s failed: %v; it said:\n%s", w.name, how, w.said())
		}
		return nil
	case <-time.After(patience):
		w.odd("hang: %s has not ended %v after it was asked to", w.name, patience)
		return w.end()
	}
}

// discard ends the process, if there is one, and the proxies.
func (w *worker) discard() {
	if w.cmd != nil {
		_ = w.cmd.Process.Kill()
		<-w.done
	}
	each(w.proxies, (*faultproxy.Proxy).Close)
}
