package others

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
)

// store is where locks are kept: a *testserver.Server.
type store interface {
	Addr() string
	Restart(opts ...testserver.Option) error
}

// stage is one library on its server, for one schedule.
type stage struct {
	command []string // of the adapter, without the address
	store   store
	ttl     time.Duration
	key     string
	endless bool // a call that waits cannot give up
	stderr  *os.File

	all     []*process
	proxy   *faultproxy.Proxy
	version string
}

// result is what was seen. Which of it a schedule fills in, its columns show.
type result struct {
	Next     time.Duration   `json:"next,omitempty"`     // until the next one was in
	Both     time.Duration   `json:"both,omitempty"`     // for how long two believed in their lock, and could act
	Told     time.Duration   `json:"told,omitempty"`     // until the holder was told
	Doubtful bool            `json:"doubtful,omitempty"` // it was told that the lock may be lost
	Unlock   string          `json:"unlock,omitempty"`   // the answer to the holder's unlock
	Waiter   string          `json:"waiter,omitempty"`   // the error that the waiter met
	Orders   []string        `json:"orders,omitempty"`   // in which waiters were served, by rounds
	Served   []time.Duration `json:"served,omitempty"`   // in how long all of them, by rounds
	Tokens   string          `json:"tokens,omitempty"`   // rise, do not rise, none
	GaveUp   time.Duration   `json:"gave_up,omitempty"`  // until the next one was in, behind a waiter that gave up
	Killed   time.Duration   `json:"killed,omitempty"`   // behind a waiter that was killed
	Unheard  time.Duration   `json:"unheard,omitempty"`  // behind a caller that did not hear that it has the lock
	Caller   string          `json:"caller,omitempty"`   // what that caller was told
	Failed   string          `json:"failed,omitempty"`   // why the schedule could not be played
}

// Times that are none.
const (
	never  time.Duration = -1 // it did not come while it was waited for
	before time.Duration = -2 // it came before the event that it is measured from
)

// start starts a process that is connected to the store.
func (s *stage) start() (*process, error) { return s.startAt(s.store.Addr()) }

// startBehindProxy starts a process whose connections pass through s.proxy.
func (s *stage) startBehindProxy() (*process, error) {
	var err error
	if s.proxy, err = faultproxy.Listen(s.store.Addr(), faultproxy.Framer{}); err != nil {
		return nil, err
	}
	return s.startAt(s.proxy.Addr())
}

func (s *stage) startAt(addr string) (*process, error) {
	p, err := startProcess(append(s.command[:len(s.command):len(s.command)], addr), s.stderr)
	if err != nil {
		return nil, err
	}
	s.all = append(s.all, p)
	s.version = p.version
	return p, nil
}

// holderAndWaiter has one process hold the lock, and another wait for it.
func (s *stage) holderAndWaiter(
	holder, waiter func() (*process, error),
) (a, b *process, next <-chan grant, err error) {
	a, err1 := holder()
	b, err2 := waiter()
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, nil, err
	}
	if err := a.hold(s.key, s.ttl); err != nil {
		return nil, nil, nil, err
	}
	next = b.lockUntilHeld(s.key, s.ttl)
	time.Sleep(s.ttl / 20) // its request arrives
	return a, b, next, nil
}

// close ends all processes.
func (s *stage) close() {
	for _, p := range s.all {
		p.kill()
	}
	if s.proxy != nil {
		s.proxy.Close()
	}
	s.all, s.proxy = nil, nil
}

// play plays one schedule on a key of its own.
func (s *stage) play(sch schedule, key string) (r result) {
	s.key = key
	defer s.close()
	if err := sch.play(s, &r); err != nil {
		r.Failed = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return r
}

func sleepUntil(t time.Time) { time.Sleep(time.Until(t)) }

// replicated is a Redis and its replica, which hears of nothing more.
type replicated struct {
	master, replica *testserver.Server
	link            *faultproxy.Proxy // from the replica to the master
	dir             string
}

// replicated gives the store a replica that lags.
func (s *stage) replicated() (*replicated, error) {
	master, ok := s.store.(*testserver.Server)
	if !ok {
		return nil, errors.New("this store has no replicas")
	}
	dir, err := os.MkdirTemp("", "others-")
	if err != nil {
		return nil, err
	}
	g := &replicated{master: master, dir: dir}
	if g.link, err = faultproxy.Listen(master.Addr(), faultproxy.Framer{}); err == nil {
		g.replica, err = testserver.StartRedis(context.Background(), dir)
	}
	if err == nil {
		err = g.replica.Follow(g.link.Addr())
	}
	if err != nil {
		g.end()
		return nil, err
	}
	g.link.Hold(faultproxy.ToClient)
	return g, nil
}

// failOver kills the master, promotes the replica, and has the proxy lead to it.
func (g *replicated) failOver(p *faultproxy.Proxy) error {
	if err := g.master.Kill(); err != nil {
		return err
	}
	if _, err := g.replica.Ask("REPLICAOF", "NO", "ONE"); err != nil {
		return err
	}
	p.Aim(g.replica.Addr())
	return nil
}

func (g *replicated) end() {
	if g.replica != nil {
		_ = g.replica.Stop()
	}
	if g.link != nil {
		g.link.Close()
	}
	os.RemoveAll(g.dir)
}
