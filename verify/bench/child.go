package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	process "github.com/fencelock/fencelock/internal/worker"
)

// job is what a child process is to do.
type job struct {
	Peer   string // empty: keep a processor awake
	Env    Env
	Key    string
	Leases int  // to hold; 0: contend for the key
	Serve  bool // answer over HTTP
	Pings  bool // send PING

	// Of those that contend:
	Guard      string // file
	Goroutines int
	Hold       time.Duration // how long each holds the lock
}

// Child does a job and ends the program, in a process that a run has started. Elsewhere it
// returns at once.
func Child() { process.Main(job.do) }

// do does the job.
func (j job) do() error {
	if j.Pings {
		return ping(j.Env)
	}
	if j.Peer == "" {
		return spin()
	}
	peer, err := findPeer(j.Peer)
	if err != nil {
		return err
	}
	switch {
	case j.Serve:
		return serveFloor(j.Env, peer)
	case j.Leases == 0:
		return contend(j, peer)
	}
	v, err := hold(j, peer)
	return errors.Join(err, report(v))
}

// report tells the parent of this process.
func report(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }

// spin uses up one processor, when nobody else wants it, until its parent is gone.
func spin() error {
	runtime.LockOSThread()
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19); err != nil { // of this thread
		return err
	}
	var over atomic.Bool // never: the process ends with its parent
	for !over.Load() {
	}
	return nil
}

// keepAwake has a child spin on each processor until stop. On an idle virtual machine a
// thread that is woken waits for its processor to wake up too, longer than a server on the
// loopback device needs for its answer.
func keepAwake(ctx context.Context) (stop func(), err error) {
	ctx, stop = context.WithCancel(ctx)
	for range runtime.NumCPU() {
		c, err := startChild(ctx, job{})
		if err != nil {
			stop()
			return nil, err
		}
		go func() { _ = c.cmd.Wait() }()
	}
	return stop, nil
}

// child is another run of this program.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// startChild starts a child on its job. It is killed when ctx ends.
func startChild(ctx context.Context, j job) (*child, error) {
	cmd, err := process.Command(ctx, j)
	in, err2 := cmd.StdinPipe()
	out, err3 := cmd.StdoutPipe()
	if err := errors.Join(err, err2, err3, cmd.Start()); err != nil {
		return nil, fmt.Errorf("starting a child process: %w", err)
	}
	return &child{cmd, in, json.NewDecoder(out)}, nil
}

// receive waits for the child's next report.
func (c *child) receive(v any) error {
	if err := c.out.Decode(v); err != nil {
		return fmt.Errorf("a child process ended too early, or was killed because it hung: %w", err)
	}
	return nil
}

// proceed lets the child go on from where it waits.
func (c *child) proceed() error {
	_, err := fmt.Fprintln(c.in)
	return err
}
