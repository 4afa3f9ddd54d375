package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/child"
	"github.com/fencelock/fencelock/internal/terminal"
)

// progressSource says what shows that a command makes progress. The zero value is nothing.
type progressSource struct {
	text   string
	fd     int    // bytes that it writes to this descriptor
	file   string // changes of this file
	stdout bool   // its output
}

func (p *progressSource) Type() string   { return "fd:N|file:PATH|stdout" }
func (p *progressSource) String() string { return p.text }

func (p *progressSource) Set(text string) error {
	kind, rest, _ := strings.Cut(text, ":")
	*p = progressSource{text: text}
	switch {
	case kind == "stdout" && text == kind:
		p.stdout = true
	case kind == "file" && rest != "":
		p.file = rest
	case kind == "fd":
		n, err := strconv.Atoi(rest)
		if err != nil || n < child.MinExtra || n > child.MaxExtra {
			return fmt.Errorf("want fd:%d to fd:%d", child.MinExtra, child.MaxExtra)
		}
		if runtime.GOOS == "windows" {
			return errors.New("fd: needs Unix; want file:PATH or stdout")
		}
		p.fd = n
	default:
		return errors.New("want fd:3, file:PATH or stdout")
	}
	return nil
}

// addProgress declares the flags that have a command end when it makes no progress.
func (f *holdFlags) addProgress(cmd *cobra.Command) {
	p := cmd.Flags()
	p.Var(&f.progress, "progress", "what shows that the command makes progress: writes to a descriptor, changes of a "+
		"file, or output")
	p.Var(&f.stall, "stall", "with --progress: the command hangs if it shows no progress for this long, and loses its "+
		"lock")
}

// checkProgress checks --progress and --stall.
func (f *holdFlags) checkProgress(set func(string) bool) error {
	least := f.ttl.d / 3 // between two renewals
	switch {
	case set("progress") != set("stall"):
		return usage("--progress says what shows progress, and --stall how long the command may show none; give both")
	case !set("stall"):
		return nil
	case f.stall.d <= 0:
		return usage("--stall must be positive")
	case f.stall.d < least:
		return usage("--stall %v is less than a third of --ttl %v, the time between two renewals; use --ttl %v or less",
			f.stall.d, f.ttl.d, 3*f.stall.d)
	case f.maxHold.set && f.stall.d >= f.maxHold.d:
		return usage("--max-hold %v ends the command before --stall %v; make --stall shorter", f.maxHold.d, f.stall.d)
	}
	return nil
}

// progress watches for signs of progress of a command, and ticks. A nil progress watches
// nothing.
type progress struct {
	source progressSource
	stall  time.Duration
	lease  *fencelock.Lease
	start  time.Time
	last   atomic.Int64 // since start

	file        fileWatch   // of the source's file
	read, write *os.File    // of the command's descriptor
	passing     atomic.Bool // output is being passed on: the reader may be slow
	ending      atomic.Bool
	stop        chan struct{}
	stopped     chan struct{}
}

// drainFor is how long the output of a command that has ended is waited for: a process that
// left its group may have the pipe open forever.
const drainFor = 200 * time.Millisecond

// watchProgress adds to c what the source needs.
func (f *holdFlags) watchProgress(l *fencelock.Lease, c *child.Command) (*progress, error) {
	if f.progress.text == "" {
		return nil, nil
	}
	p := &progress{
		source: f.progress, stall: f.stall.d, lease: l, start: time.Now(),
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	if p.source.file != "" {
		p.file.look(p.source.file, p.stall) // before the command can write, and others can rotate
		return p, nil
	}
	var err error
	if p.read, p.write, err = os.Pipe(); err != nil {
		return nil, err
	}
	if p.source.stdout {
		c.Stdout = p.write
	} else {
		c.Extra, c.ExtraFD = p.write, p.source.fd
	}
	return p, nil
}

// begin begins to watch, after the command was started, or could not be.
func (p *progress) begin() {
	if p == nil {
		return
	}
	if p.write != nil {
		_ = p.write.Close()
	}
	if p.source.stdout {
		go p.watchReader()
	}
	go func() {
		defer close(p.stopped)
		if p.read != nil {
			p.readPipe()
		} else {
			p.watchFile()
		}
	}()
}

// end ends the watching. What a command that has ended had written before is passed on.
func (p *progress) end() {
	if p == nil {
		return
	}
	close(p.stop)
	p.ending.Store(true)
	if p.read != nil {
		_ = p.read.SetReadDeadline(time.Now().Add(drainFor))
	}
	<-p.stopped
}

func (p *progress) tick() {
	p.last.Store(int64(time.Since(p.start)))
	p.lease.Tick()
}

// stalled reports whether the command has shown no progress for --stall.
func (p *progress) stalled() bool {
	return p != nil && time.Since(p.start)-time.Duration(p.last.Load()) >= p.stall
}

// readPipe ticks for everything that is read, and passes on what is output.
func (p *progress) readPipe() {
	defer p.read.Close() // the command gets an error or SIGPIPE, as it would without this pipe
	buf := make([]byte, 64<<10)
	for {
		n, err := p.read.Read(buf)
		if n > 0 {
			p.tick()
			if !p.pass(buf[:n]) {
				return
			}
		}
		if err != nil {
			return
		}
		if p.ending.Load() {
			_ = p.read.SetReadDeadline(time.Now().Add(drainFor))
		}
	}
}

// pass writes output of the command to stdout, and reports whether the command may go on
// writing.
func (p *progress) pass(b []byte) bool {
	if !p.source.stdout {
		return true
	}
	p.passing.Store(true)
	_, err := os.Stdout.Write(b)
	p.passing.Store(false)
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		say("the output of the command could not be passed on: %v", terminal.Pathless(err))
	}
	return err == nil
}

// watchReader ticks while the reader of the output keeps it waiting: the command has written
// something, and may be waiting itself until it can go on.
func (p *progress) watchReader() {
	p.eachLook(func() {
		if p.passing.Load() {
			p.tick()
		}
	})
}

// watchFile ticks whenever the file has changed, or another one has its name.
func (p *progress) watchFile() {
	defer p.file.close()
	p.eachLook(func() {
		if p.file.look(p.source.file, p.stall) {
			p.tick()
		}
	})
}

// eachLook calls f often, until the watching ends.
func (p *progress) eachLook(f func()) {
	look := time.NewTicker(min(max(p.stall/20, 5*time.Millisecond), time.Second))
	defer look.Stop()
	for {
		select {
		case <-look.C:
			f()
		case <-p.stop:
			return
		}
	}
}
