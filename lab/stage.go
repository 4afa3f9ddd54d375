package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/redis/go-redis/v9"
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
	starts []time.Duration // of the steps
	open   bool

	events []history.Event
	claims map[string]string // the present claim of each actor
	wishes int
	key    string // that the actors want
	keys   []string

	nodes   []*node
	holds   func() []Text // what else there is to see in the store
	closers []func() error
}

// node is a Redis server, and a client of it that nobody hears.
type node struct {
	name   string // before what it holds, if there are several
	server *testserver.Server
	rdb    *redis.Client
}

func newStage(ctx context.Context, dir string) *stage {
	return &stage{
		ctx: ctx, dir: dir, start: time.Now(), claims: map[string]string{}, key: "lock", keys: []string{"lock"},
	}
}

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

// redis starts a server. What it holds is shown under name, which may be empty.
func (s *stage) redis(name string, config ...string) *node {
	dir, err := os.MkdirTemp(s.dir, "redis-*")
	s.check(err)
	server, err := testserver.StartRedis(s.ctx, dir, testserver.Config(config...))
	s.check(err)
	n := &node{name, server, dial(server.Addr())}
	s.nodes = append(s.nodes, n)
	s.closers = append(s.closers, n.server.Stop, n.rdb.Close)
	return n
}

// dial returns a client that never sends a request twice: what is played must be what
// is shown.
func dial(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DisableIdentity: true, Protocol: 2, ContextTimeoutEnabled: true,
	})
}

// now is the clock of the history.
func (s *stage) now() time.Duration { return time.Since(s.start) + s.skipped }

// pass lets time go by on stage, without waiting: every key of every server is that
// much nearer to its end.
func (s *stage) pass(d time.Duration) {
	s.skipped += d
	for _, n := range s.nodes {
		n.pass(s, d)
	}
	s.event(history.Look, "")
}

// pass moves the time of one server.
func (n *node) pass(s *stage, d time.Duration) {
	keys, err := n.rdb.Keys(s.ctx, "*").Result()
	s.check(err)
	for _, key := range keys {
		left, err := n.rdb.PTTL(s.ctx, key).Result()
		s.check(err)
		if left < 0 { // it has no end
			continue
		}
		s.check(n.rdb.PExpire(s.ctx, key, max(left-d, 0)).Err())
	}
}

// at begins a step. What is sent until the next one belongs to it.
func (s *stage) at(actor string, en, zh string) {
	s.endStep()
	s.steps = append(s.steps, Step{Actor: actor, Text: Text{en, zh}})
	s.starts = append(s.starts, s.now())
	s.open = true
}

func (s *stage) endStep() {
	s.mu.Lock()
	calls := s.calls
	s.calls = nil
	s.mu.Unlock()
	if !s.open {
		return
	}
	s.open = false
	step := &s.steps[len(s.steps)-1]
	step.Calls = calls
	step.Holds = s.look()
}

// record adds a line to what was sent in this step.
func (s *stage) record(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, line)
}

// mark puts each breach beside the step in which it happened.
func (s *stage) mark(found []history.Violation) {
	for _, v := range found {
		for i := len(s.steps) - 1; i >= 0; i-- {
			if s.starts[i] <= v.At {
				s.steps[i].Broke = append(s.steps[i].Broke, v.Rule)
				break
			}
		}
	}
}

// event adds to the history what one actor sees of its present claim.
func (s *stage) event(op history.Op, actor string, more ...func(*history.Event)) {
	e := history.Event{At: s.now(), Op: op, Process: actor}
	switch op {
	case history.Look, history.Crash, history.Pause, history.Resume:
	case history.Enter:
		s.wishes++
		s.claims[actor] = fmt.Sprintf("%s/%d", actor, s.wishes)
		fallthrough
	default:
		e.Key, e.Claim = s.key, s.claims[actor]
	}
	for _, f := range more {
		f(&e)
	}
	s.events = append(s.events, e)
}

func token(t int64) func(*history.Event)   { return func(e *history.Event) { e.Token = t } }
func handle(h string) func(*history.Event) { return func(e *history.Event) { e.Handle = h } }
func reading(e *history.Event)             { e.Kind = history.Shared }

// errKilled is how a scheme ends that is killed between two of its steps.
var errKilled = errors.New("killed")

// locks lets an actor lock, and wants it to succeed.
func (s *stage) locks(actor string, lock func() (bool, error), more ...func(*history.Event)) {
	s.event(history.Enter, actor, more...)
	s.again(actor, lock, more...)
}

// again is locks for one who has waited.
func (s *stage) again(actor string, lock func() (bool, error), more ...func(*history.Event)) {
	s.answers(actor, lock, true)
	s.event(history.Believe, actor, more...)
}

// waits lets an actor try in vain, and go on waiting.
func (s *stage) waits(actor string, lock func() (bool, error)) {
	s.event(history.Enter, actor)
	s.answers(actor, lock, false)
}

// refused lets an actor try in vain, and give up.
func (s *stage) refused(actor string, lock func() (bool, error)) {
	s.waits(actor, lock)
	s.event(history.Refused, actor)
}

func (s *stage) answers(actor string, lock func() (bool, error), want bool) {
	got, err := lock()
	s.check(err)
	s.want(got == want, "%s got the lock: %v", actor, got)
}

// unlocks lets an actor give the lock back.
func (s *stage) unlocks(actor string, unlock func() error, more ...func(*history.Event)) {
	s.event(history.Release, actor, more...)
	s.check(unlock())
	s.event(history.Left, actor)
}

// writes lets the resource accept a write: it knows no tokens.
func (s *stage) writes(actor string) {
	s.event(history.Write, actor)
	s.record("write(" + actor + ") → ok")
}

// kills ends an actor.
func (s *stage) kills(actor string) { s.event(history.Crash, actor) }
