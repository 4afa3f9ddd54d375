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

// job is what a child process is to do. It comes as the first line of its
// standard input; the child then says that it is ready, and does each next step
// when it gets a line. It ends when there is none.
type job struct {
	Do   string // "contend", "hold" or "spin"
	Peer string
	Env  Env

	Process int64 // of those that contend
	Workers int
	Rest    time.Duration // after each lock
	Key     string
	Guard   string // file

	Leases int // to be held
	Busy   bool
}

// Child does the job that in tells, and reports to out. It is what the program
// does when it was started by another run of itself.
func Child(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	text, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	var j job
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	// say reports, and told waits for the word to go on.
	say := func(v any) error { return json.NewEncoder(out).Encode(v) }
	told := func() error {
		_, err := lines.ReadString('\n')
		return err
	}
	if j.Do == "spin" {
		return spin(told)
	}
	p, err := findPeer(j.Peer)
	if err != nil {
		return err
	}
	switch j.Do {
	case "contend":
		return contend(j, p, say, told)
	case "hold":
		return hold(j, p, say, told)
	}
	return fmt.Errorf("a child cannot %q", j.Do)
}

// spin uses up one processor, when nobody else wants it, until it is told to end.
func spin(told func() error) error {
	runtime.LockOSThread()
	if err := yieldAlways(); err != nil {
		return err
	}
	var end atomic.Bool
	var err error
	go func() {
		err = told()
		end.Store(true)
	}()
	for !end.Load() {
	}
	return err
}

// keepAwake has a child spin on each processor, until it is stopped. On a machine
// with nothing to do, a thread that is woken waits for its processor to wake up
// too, on a virtual one ten times as long as a server on the loopback device needs
// for its answer, and now and then not at all: what one goroutine alone measures
// there is the machine.
func (b *Bench) keepAwake(ctx context.Context) (stop func() error, err error) {
	var spinners []*child
	stop = func() error {
		var errs []error
		for _, c := range spinners {
			errs = append(errs, c.next(), c.end())
		}
		return errors.Join(errs...)
	}
	for range runtime.NumCPU() {
		if !canYield {
			break
		}
		c, err := b.startChild(ctx, job{Do: "spin"})
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		spinners = append(spinners, c)
	}
	return stop, nil
}

// child is another run of this program.
type child struct {
	cmd   *exec.Cmd
	words io.WriteCloser
	says  *json.Decoder
}

// startChild starts a child on its job. It is killed when ctx ends.
func (b *Bench) startChild(ctx context.Context, j job) (*child, error) {
	c := &child{cmd: exec.CommandContext(ctx, b.Command[0], b.Command[1:]...)}
	c.cmd.Stderr = os.Stderr
	c.cmd.WaitDelay = patience
	var err error
	if c.words, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.says = json.NewDecoder(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a child process: %w", err)
	}
	return c, json.NewEncoder(c.words).Encode(j)
}

// errHangs says that a child was killed because it said nothing.
var errHangs = errors.New("a child process hung")

// hear waits for what the child says next, for d at most.
func (c *child) hear(v any, d time.Duration) error {
	var hangs atomic.Bool
	late := time.AfterFunc(d, func() {
		hangs.Store(true)
		_ = c.cmd.Process.Kill()
	})
	defer late.Stop()
	if err := c.says.Decode(v); err != nil {
		if hangs.Load() {
			return errHangs
		}
		return fmt.Errorf("a child process ended too early: %w", err)
	}
	return nil
}

// next lets the child take its next step.
func (c *child) next() error {
	_, err := io.WriteString(c.words, "next\n")
	return err
}

// end waits for the child to end by itself.
func (c *child) end() error {
	return errors.Join(c.words.Close(), c.cmd.Wait())
}

// kill ends a child that is of no more use.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.end()
}
