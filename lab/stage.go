package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/internal/testserver"
)

// stage is where a schedule is played. One goroutine drives it. An error that the
// schedule does not foresee ends the play: check panics, and play recovers.
type stage struct {
	ctx context.Context
	dir string

	start   time.Time
	skipped time.Duration // time that has passed on stage only

	mu     sync.Mutex // guards calls: a client of the library sends when it likes
	calls  []string
	steps  []Step
	events []history.Event
	claims map[wish]string // the present claim of each
	wishes int
	keys   []string   // the actors want the last one
	gate   fence.Gate // before the resource: it refuses a token below the largest it has seen

	nodes   []*node
	holds   func() []Text // what there is to see in the store; nil for all keys of all nodes
	closers []func() error
}

// wish is an actor and a key that it wants.
type wish struct{ actor, key string }

// firstKey is the key that the actors want first.
const firstKey = "lock"

// failure is what check panics with.
type failure struct{ error }

// play plays a schedule and closes everything that it opened.
func (s *stage) play(schedule func(*stage)) (err error) {
	defer func() {
		failed := recover()
		if f, ok := failed.(failure); ok {
			err = f.error
		} else if failed != nil {
			panic(failed)
		}
		for _, end := range slices.Backward(s.closers) {
			err = errors.Join(err, end())
		}
	}()
	schedule(s)
	s.endStep()
	return nil
}

// check ends the play with err unless it is nil.
func (s *stage) check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// want ends the play unless what the text tells is what happened.
func (s *stage) want(ok bool, format string, args ...any) {
	if !ok {
		s.check(fmt.Errorf("the schedule did not go as told: "+format, args...))
	}
}

// until waits for what happens by itself.
func (s *stage) until(what string, ok func() bool) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.want(false, "waited in vain until %s: %v", what, s.ctx.Err())
		}
	}
}

// actor is who acts on stage.
type actor struct {
	*stage
	name string
}

// step is a step of one actor.
func (a actor) step(en, zh string, do ...func()) { a.perform(a.name, Text{en, zh}, do) }

// step is a step that happens to everybody.
func (s *stage) step(en, zh string, do ...func()) { s.perform("", Text{en, zh}, do) }

// perform plays a step. What is sent until the next one belongs to it.
func (s *stage) perform(name string, text Text, do []func()) {
	s.endStep()
	s.steps = append(s.steps, Step{Actor: name, Text: text, begun: s.now()})
	for _, f := range do {
		f()
	}
}

func (s *stage) endStep() {
	if len(s.steps) == 0 {
		return
	}
	step := &s.steps[len(s.steps)-1]
	s.mu.Lock()
	step.Calls, s.calls = append(step.Calls, s.calls...), nil
	s.mu.Unlock()
	step.Holds = s.look()
}

// record adds a line to what was sent in this step.
func (s *stage) record(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, line)
}

// key is what the actors want.
func (s *stage) key() string { return s.keys[len(s.keys)-1] }

// turnTo makes another key the one that the actors want.
func (s *stage) turnTo(key string) {
	s.keys = append(slices.DeleteFunc(s.keys, func(k string) bool { return k == key }), key)
}

// now is the clock of the history.
func (s *stage) now() time.Duration { return time.Since(s.start) + s.skipped }

// passes lets time go by on stage, without waiting: every key of every server is that
// much nearer to its end.
func (s *stage) passes(d time.Duration, en, zh string) {
	s.step(en, zh, func() { s.skip(d) })
}

func (s *stage) skip(d time.Duration) {
	s.skipped += d
	for _, n := range s.nodes {
		n.pass(s, d)
	}
	actor{s, ""}.event(history.Look)
}

// event adds to the history what an actor sees of its present claim.
func (a actor) event(op history.Op, more ...func(*history.Event)) {
	e := history.Event{At: a.now(), Op: op, Process: a.name}
	switch op {
	case history.Look, history.Crash, history.Pause, history.Resume:
	case history.Enter:
		a.wishes++
		a.claims[wish{a.name, a.key()}] = fmt.Sprintf("%s/%d", a.name, a.wishes)
		fallthrough
	default:
		e.Key, e.Claim = a.key(), a.claims[wish{a.name, a.key()}]
	}
	for _, f := range more {
		f(&e)
	}
	a.events = append(a.events, e)
}

func token(t int64) func(*history.Event)   { return func(e *history.Event) { e.Token = t } }
func handle(h string) func(*history.Event) { return func(e *history.Event) { e.Handle = h } }
func reading(e *history.Event)             { e.Kind = history.Shared }

// recovers does work as a web server calls a handler: a panic ends the work, and the process
// goes on. It reports whether there was one.
func (a actor) recovers(work func()) (panicked bool) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			panic(p)
		default:
			panicked = true
			a.record(fmt.Sprint("panic: ", p))
		}
	}()
	work()
	return false
}

func (a actor) dies()   { a.event(history.Crash) }
func (a actor) stops()  { a.event(history.Pause) }
func (a actor) goesOn() { a.event(history.Resume) }

// node is a Redis server, and a client of it that nobody hears.
type node struct {
	name   string // before what it holds, if there are several
	server *testserver.Server
	rdb    *redis.Client
}

// serve starts a server in a folder of its own, which runs until the play ends.
func (s *stage) serve(start func(dir string) (*testserver.Server, error)) *testserver.Server {
	dir, err := os.MkdirTemp(s.dir, "server-*")
	s.check(err)
	server, err := start(dir)
	s.check(err)
	s.closers = append(s.closers, server.Stop)
	return server
}

// redis starts a server. What it holds is shown under name, which may be empty.
func (s *stage) redis(name string, config ...string) *node {
	server := s.serve(func(dir string) (*testserver.Server, error) {
		return testserver.StartRedis(s.ctx, dir, testserver.Config(config...))
	})
	n := &node{name, server, redis.NewClient(&redis.Options{
		// A request is never sent twice: what is played must be what is shown.
		Addr: server.Addr(), MaxRetries: -1, DisableIdentity: true, Protocol: 2, ContextTimeoutEnabled: true,
	})}
	s.nodes = append(s.nodes, n)
	s.closers = append(s.closers, n.rdb.Close)
	return n
}

// pass moves the time of one server.
func (n *node) pass(s *stage, d time.Duration) {
	keys, err := n.rdb.Keys(s.ctx, "*").Result()
	s.check(err)
	for _, key := range keys {
		left, err := n.rdb.PTTL(s.ctx, key).Result()
		s.check(err)
		if left >= 0 { // it has an end
			s.check(n.rdb.PExpire(s.ctx, key, max(left-d, 0)).Err())
		}
	}
}

// restart empties the memory of a server.
func (n *node) restart(s *stage) func() {
	return func() {
		s.check(n.server.Restart())
		s.check(n.rdb.Ping(s.ctx).Err())
	}
}
