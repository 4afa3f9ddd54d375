package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"time"
)

// job is what a child process is to do. It is the first line of its standard input. The
// child waits at fixed points until its parent sends another line.
type job struct {
	Do     string // "contend", "hold" or "spin"
	Peer   string
	Env    Env
	Key    string
	Guard  string // file, of those that contend
	Leases int    // to be held
}

// parent is what a child knows of the process that started it.
type parent struct {
	lines *bufio.Reader
	out   *json.Encoder
}

// wait waits until the parent lets the child proceed.
func (p *parent) wait() error {
	_, err := p.lines.ReadString('\n')
	return err
}

func (p *parent) send(v any) error { return p.out.Encode(v) }

// Child does the job that its first line of input describes, and reports to out.
func Child(in io.Reader, out io.Writer) error {
	p := &parent{bufio.NewReader(in), json.NewEncoder(out)}
	text, err := p.lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	var j job
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	if j.Do == "spin" {
		return spin(p)
	}
	peer, err := findPeer(j.Peer)
	if err != nil {
		return err
	}
	switch j.Do {
	case "contend":
		return contend(j, peer, p)
	case "hold":
		return hold(j, peer, p)
	}
	return fmt.Errorf("a child has no job %q", j.Do)
}

// spin uses up one processor, when nobody else wants it, until it may proceed.
func spin(p *parent) error {
	runtime.LockOSThread()
	if err := yieldAlways(); err != nil {
		return err
	}
	var end atomic.Bool
	var err error
	go func() {
		err = p.wait()
		end.Store(true)
	}()
	for !end.Load() {
	}
	return err
}

// awake runs f while a child spins on each processor. On an idle virtual machine a thread
// that is woken waits for its processor to wake up too, longer than a server on the
// loopback device needs for its answer.
func (b *Bench) awake(ctx context.Context, f func() error) (err error) {
	for range runtime.NumCPU() {
		if !canYield {
			break
		}
		c, err := b.startChild(ctx, job{Do: "spin"})
		if err != nil {
			return err
		}
		defer c.kill()
	}
	return f()
}

// child is another run of this program.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// startChild starts a child on its job. It is killed when ctx ends.
func (b *Bench) startChild(ctx context.Context, j job) (*child, error) {
	c := &child{cmd: exec.CommandContext(ctx, b.Command[0], b.Command[1:]...)}
	c.cmd.Stderr = os.Stderr
	c.cmd.WaitDelay = patience
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = json.NewDecoder(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a child process: %w", err)
	}
	return c, json.NewEncoder(c.in).Encode(j)
}

// errHung says that a child was killed because it reported nothing in time.
var errHung = errors.New("a child process hung")

// receive waits for the child's next report, for d at most.
func (c *child) receive(v any, d time.Duration) error {
	var late atomic.Bool
	timer := time.AfterFunc(d, func() {
		late.Store(true)
		_ = c.cmd.Process.Kill()
	})
	defer timer.Stop()
	if err := c.out.Decode(v); err != nil {
		if late.Load() {
			return errHung
		}
		return fmt.Errorf("a child process ended too early: %w", err)
	}
	return nil
}

// proceed lets the child go on from where it waits.
func (c *child) proceed() error {
	_, err := io.WriteString(c.in, "proceed\n")
	return err
}

// end waits for the child to end by itself.
func (c *child) end() error {
	return errors.Join(c.in.Close(), c.cmd.Wait())
}

// kill ends a child.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.end()
}
