package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// sale lets three instances sell so many pieces, and returns how many pieces were sold, and how
// long that took. Disturbed, one instance is stopped and one is killed, in mid-sale.
func (s *shop) sale(
	ctx context.Context, kind string, pieces int, disturbed bool,
) (sold int, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, q := range []string{"TRUNCATE orders", fmt.Sprintf("UPDATE stock SET pieces = %d", pieces)} {
		if _, err := s.db.ExecContext(ctx, q); err != nil {
			return 0, 0, err
		}
	}
	for _, q := range [][]string{{"FLUSHALL"}, {"SET", stockKey, strconv.Itoa(pieces)}} {
		if _, err := s.redis.Ask(q...); err != nil {
			return 0, 0, err
		}
	}

	began := time.Now()
	var all sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		p, err := start(ctx, kind, s.dsn(), s.redis.Addr(), disturbed)
		if err != nil {
			return 0, 0, err
		}
		var fate func(*process) error
		at := 3 + rand.IntN(5) // which of its sales it does not get through undisturbed
		switch {
		case !disturbed:
		case i == 0:
			fate = stopForLonger
		case i == 1:
			fate = (*process).kill
		}
		all.Go(func() { errs[i] = p.watch(at, fate) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, 0, err
	}
	took = time.Since(began)
	err = s.db.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&sold)
	return sold, took, err
}

// stopForLonger stops an instance for several times the length of its lock.
func stopForLonger(p *process) error {
	if err := p.stop(); err != nil {
		return err
	}
	time.Sleep(3 * lease)
	return p.goOn()
}

// process is one instance.
type process struct {
	cmd  *exec.Cmd
	out  io.ReadCloser
	dead bool
}

func start(ctx context.Context, kind, dsn, redis string, slowly bool) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	pace := "fast"
	if slowly {
		pace = "slowly"
	}
	cmd := exec.CommandContext(ctx, self, "instance", kind, dsn, redis, pace)
	cmd.Env = append(os.Environ(), "INVENTORY_INSTANCE=1") // the test's binary looks at it
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &process{cmd: cmd, out: out}, cmd.Start()
}

// watch follows an instance to its end. It says on its output each time it has read the
// stock and is about to write; the at-th time it meets its fate.
func (p *process) watch(at int, fate func(*process) error) error {
	lines := bufio.NewScanner(p.out)
	for lines.Scan() {
		if at--; at == 0 && fate != nil {
			if err := fate(p); err != nil {
				return err
			}
		}
	}
	err := p.cmd.Wait()
	if p.dead {
		return nil
	}
	return err
}

func (p *process) kill() error {
	p.dead = true
	return p.cmd.Process.Kill()
}
