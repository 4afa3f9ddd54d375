package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

// play lets three replicas of each kind live through the ticks, and returns what
// happened to each tick.
func play(ctx context.Context, redis *testserver.Server) (map[string][]tick, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	b := &book{ticks: map[string]map[int64]*tick{}}
	var all []*process
	defer func() {
		for _, p := range all {
			_ = p.cmd.Process.Kill()
			_ = p.wait()
		}
	}()
	for _, k := range kinds {
		b.ticks[k.name] = map[int64]*tick{}
	}
	for _, k := range kinds {
		for name := range behind {
			p, err := start(ctx, k.name, name, redis.Addr())
			if err != nil {
				return nil, err
			}
			all = append(all, p)
			go p.follow(b)
		}
	}
	for _, p := range all {
		select {
		case <-p.ready:
		case <-p.ended:
			return nil, fmt.Errorf("replica %s of %s ended before it was ready", p.name, p.kind)
		}
	}

	// The third tick is the one in which the first to run it hangs.
	first := time.Now().Add(every * 5 / 4).Truncate(every) // with time to get ready for it
	time.Sleep(time.Until(first.Add(every * 3 / 2)))
	for _, k := range kinds {
		if _, err := redis.Ask("SET", stuck(k.name), "1"); err != nil {
			return nil, err
		}
	}
	time.Sleep(time.Until(first.Add((ticks-1)*every + every*7/10)))
	var errs []error
	for _, p := range all {
		_ = p.in.Close()
	}
	for _, p := range all {
		if err := p.wait(); err != nil && !p.killed {
			errs = append(errs, fmt.Errorf("replica %s of %s: %w", p.name, p.kind, err))
		}
	}
	return b.from(first), errors.Join(errs...)
}

// book is what the replicas said.
type book struct {
	mu    sync.Mutex
	ticks map[string]map[int64]*tick // by kind and time
}

// note enters what a replica said, and reports whether it is to be killed.
func (b *book) note(kind, line string) (kill bool) {
	var what string
	var slot, token int64
	if n, _ := fmt.Sscan(line, &what, &slot, &token); n != 3 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.ticks[kind][slot]
	if t == nil {
		t = &tick{}
		b.ticks[kind][slot] = t
	}
	switch what {
	case "begun":
		t.begun++
		t.tokens = append(t.tokens, token)
	case "done":
		t.done++
	case "stuck":
		t.killed = true
		return true
	}
	return false
}

// from returns the ticks that count, in order.
func (b *book) from(first time.Time) map[string][]tick {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string][]tick{}
	for _, k := range kinds {
		for i := range ticks {
			var t tick
			if seen := b.ticks[k.name][first.Add(time.Duration(i)*every).Unix()]; seen != nil {
				t = *seen
			}
			all[k.name] = append(all[k.name], t)
		}
	}
	return all
}

// process is one replica.
type process struct {
	kind, name   string
	cmd          *exec.Cmd
	in           io.WriteCloser
	out          io.ReadCloser
	ready, ended chan struct{}
	killed       bool // looked at when it has ended
	wait         func() error
}

func start(ctx context.Context, kind, name, redis string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{kind: kind, name: name, ready: make(chan struct{}), ended: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, self, "replica", kind, name, redis)
	p.cmd.Env = append(os.Environ(), "CRON_REPLICA=1") // the test's binary looks at it
	p.cmd.Stderr = os.Stderr
	p.wait = sync.OnceValue(func() error {
		<-p.ended
		return p.cmd.Wait()
	})
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return p, p.cmd.Start()
}

// follow notes what a replica says to its end, and kills it if it hangs.
func (p *process) follow(b *book) {
	defer close(p.ended)
	for lines := bufio.NewScanner(p.out); lines.Scan(); {
		if lines.Text() == "ready" {
			close(p.ready)
		} else if b.note(p.kind, lines.Text()) {
			p.killed = true
			_ = p.cmd.Process.Kill() // as kill -9 does
		}
	}
}
