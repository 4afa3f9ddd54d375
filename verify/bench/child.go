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
)

// job is what a child process is to do.
type job struct {
	Peer   string // empty: keep a processor awake
	Env    Env
	Key    string
	Leases int    // to hold; 0: contend for the key
	Guard  string // file, of those that contend
}

// Child does the job that it reads first, and reports to out. A value in between lets it
// proceed.
func Child(in io.Reader, out io.Writer) error {
	parent, report := json.NewDecoder(in), json.NewEncoder(out)
	var j job
	if err := parent.Decode(&j); err != nil {
		return err
	}
	wait := func() error { return parent.Decode(new(bool)) }
	if j.Peer == "" {
		return spin(wait)
	}
	peer, err := findPeer(j.Peer)
	if err != nil {
		return err
	}
	if j.Leases == 0 {
		return contend(j, peer, wait, report.Encode)
	}
	v, err := hold(j, peer)
	return errors.Join(err, report.Encode(v))
}

// spin uses up one processor, when nobody else wants it, until its parent is gone.
func spin(wait func() error) error {
	runtime.LockOSThread()
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19); err != nil { // of this thread
		return err
	}
	var ended atomic.Bool
	go func() {
		_ = wait()
		ended.Store(true)
	}()
	for !ended.Load() {
	}
	return nil
}

// keepAwake has a child spin on each processor until stop. On an idle virtual machine a
// thread that is woken waits for its processor to wake up too, longer than a server on the
// loopback device needs for its answer.
func (b *Bench) keepAwake(ctx context.Context) (stop func(), err error) {
	ctx, stop = context.WithCancel(ctx)
	for range runtime.NumCPU() {
		c, err := b.startChild(ctx, job{})
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
func (b *Bench) startChild(ctx context.Context, j job) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-child") // which calls Child
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a child process: %w", err)
	}
	return &child{cmd, in, json.NewDecoder(out)}, json.NewEncoder(in).Encode(j)
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
	return json.NewEncoder(c.in).Encode(true)
}

// end waits for the child to end by itself.
func (c *child) end() error {
	return errors.Join(c.in.Close(), c.cmd.Wait())
}
