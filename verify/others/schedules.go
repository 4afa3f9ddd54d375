package others

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
)

// schedule is what happens to a lock, in order. A holds it, and B waits.
type schedule struct {
	name, title, story string
	columns            []column
	play               func(s *stage, r *result) error
	redisOnly          bool
}

var schedules = []schedule{
	{name: "kill", title: "The holder is killed", columns: killed, play: playKill,
		story: "A is killed with kill -9, a twentieth of a lease after it was granted."},
	{name: "stop", title: "The holder is stopped for two leases", columns: lost, play: playStop,
		story: "A is stopped with SIGSTOP and continued two leases later. B gives the lock back at once, and takes " +
			"it again before A goes on. B then holds it for three quarters of a lease. A waits for two leases to " +
			"be told something, and unlocks. Times are since the stop; A is told since it goes on."},
	{name: "cut", title: "The holder's connection carries nothing for two leases", columns: lost, play: playCut,
		story: "A proxy holds back what A sends and receives for two leases, and then lets it pass. A itself runs. B " +
			"holds the lock for half a lease. Two leases after the connection is well again A unlocks. Times are " +
			"since the cut."},
	{name: "outlive", title: "The work outlives the lease", columns: lost, play: playOutlive,
		story: "A works for three leases, with whatever the library does by itself, and unlocks. B holds the lock " +
			"for half a lease if it gets in before that. Times are since A's grant."},
	{name: "restart", title: "The store is killed and restarted with its data", columns: restarted, play: playRestart,
		story: "The server is killed with kill -9 and started again with all that it acknowledged (Redis with " +
			"appendfsync always). A works for four fifths of its lease, and for half a lease after the server is " +
			"back at least, and unlocks. Times of B are since that unlock."},
	{name: "amnesia", title: "Redis is killed and restarted without its data", columns: restarted, play: playAmnesia,
		redisOnly: true,
		story:     "The same on a Redis without persistence."},
	{name: "failover", title: "Redis fails over to a replica that lags", columns: restarted, play: playFailover,
		redisOnly: true,
		story: "The replica hears of nothing from before A's grant on. The master is killed with kill -9, and the " +
			"replica is promoted without having heard of the lock. A and B reach both of them by one address. The " +
			"rest is as above."},
	{name: "order", title: "Five wait, one after another", columns: ordered, play: playOrder,
		story: "Five processes ask for the lock, half a second apart, and A unlocks. Each works for 30 ms and " +
			"unlocks. Leases are five times as long here. Three rounds."},
	{name: "ghosts", title: "Who is gone leaves something behind", columns: ghosts, play: playGhosts,
		story: "How long the lock is taken by nobody: behind a waiter that gives up; behind a waiter that is killed " +
			"with kill -9; behind a caller whose answer was held back for half a lease and lost with its " +
			"connection."},
}

func playKill(s *stage, r *result) error {
	a, _, next, err := s.holderAndWaiter(s.start, s.start)
	if err != nil {
		return err
	}
	begun := time.Now()
	a.kill()
	r.Next = since(begun, next, 6*s.ttl)
	return nil
}

func playStop(s *stage, r *result) error {
	a, b, next, err := s.holderAndWaiter(s.start, s.start)
	if err != nil {
		return err
	}
	if err := a.stop(); err != nil {
		return err
	}
	begun := time.Now()
	end := begun.Add(2 * s.ttl)
	again := end.Add(-s.ttl / 4)
	if r.Next = since(begun, next, time.Until(again)); r.Next != never {
		b.unlock()
		sleepUntil(again)
		next = b.lockUntilHeld(s.key, s.ttl)
	}
	sleepUntil(end)
	if err := a.goOn(); err != nil {
		return err
	}
	sleepUntil(end.Add(s.ttl / 2))
	if _, in := receive(next, 0); in {
		b.unlock()
	}
	s.finish(r, a, b, end, end.Add(2*s.ttl))
	return nil
}

func playCut(s *stage, r *result) error {
	a, b, next, err := s.holderAndWaiter(s.startBehindProxy, s.start)
	if err != nil {
		return err
	}
	s.proxy.Hold(faultproxy.ToServer, faultproxy.ToClient)
	begun := time.Now()
	end := begun.Add(2 * s.ttl)
	if r.Next = since(begun, next, time.Until(end)); r.Next != never {
		sleepUntil(begun.Add(r.Next + s.ttl/2))
		b.unlock()
	}
	sleepUntil(end)
	s.proxy.Resume()
	s.finish(r, a, b, begun, end.Add(2*s.ttl))
	return nil
}

func playOutlive(s *stage, r *result) error {
	a, b, next, err := s.holderAndWaiter(s.start, s.start)
	if err != nil {
		return err
	}
	begun := time.Now().Add(-s.ttl / 20) // when A was granted
	end := begun.Add(3 * s.ttl)
	if r.Next = since(begun, next, time.Until(end)); r.Next != never {
		sleepUntil(begun.Add(r.Next + s.ttl/2))
		b.unlock()
	}
	s.finish(r, a, b, begun, end)
	return nil
}

// finish waits for the holder to be told until the deadline, and has it unlock.
func (s *stage) finish(r *result, a, b *process, since, deadline time.Time) {
	l, told := a.awaitTold(since, deadline)
	sleepUntil(deadline)
	r.Both = together(a.active(time.Now()), b.active(time.Now()))
	r.Unlock = a.unlock().word
	r.Told = never
	if told {
		r.Told, r.Doubtful = max(l.at.Sub(since), 1), l.word == "doubt"
	}
}

func playRestart(s *stage, r *result) error { return playRestarted(s, r, testserver.Persist(true)) }

func playAmnesia(s *stage, r *result) error {
	if err := s.store.Restart(testserver.Persist(false)); err != nil {
		return err
	}
	return playRestarted(s, r, testserver.Persist(false))
}

func playRestarted(s *stage, r *result, o testserver.Option) error {
	a, b, next, err := s.holderAndWaiter(s.start, s.start)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := s.store.Restart(o); err != nil {
		return err
	}
	return s.workOn(r, a, b, next, begun)
}

func playFailover(s *stage, r *result) error {
	g, err := s.replicated()
	if err != nil {
		return err
	}
	defer g.end()
	behind := func() (*process, error) { return s.startAt(s.proxy.Addr()) }
	a, b, next, err := s.holderAndWaiter(s.startBehindProxy, behind)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := g.failOver(s.proxy); err != nil {
		return err
	}
	return s.workOn(r, a, b, next, begun)
}

// workOn has the holder work on after the store is back, and then unlock.
func (s *stage) workOn(r *result, a, b *process, next <-chan grant, begun time.Time) error {
	end := later(begun.Add(s.ttl*3/4), time.Now().Add(s.ttl/2))
	sleepUntil(end)
	s.finish(r, a, b, begun, end)
	g, in := receive(next, 6*s.ttl)
	r.Next, r.Waiter = never, b.lastError()
	switch {
	case in && g.at.Before(end):
		r.Next = before
	case in:
		r.Next = g.at.Sub(end)
	}
	return nil
}

func playOrder(s *stage, r *result) error {
	const waiters, rounds = 5, 3
	s.ttl *= 5 // A holds the lock until all wait, also where nothing renews it
	defer func() { s.ttl /= 5 }()
	var all []*process
	for range waiters + 1 {
		p, err := s.start()
		if err != nil {
			return err
		}
		all = append(all, p)
		if err := p.hold(fmt.Sprint(s.key, "-first-", len(all)), s.ttl); err != nil { // opens what it needs
			return err
		}
		p.unlock()
	}
	for round := range rounds {
		var served queue
		took, err := s.serve(&served, all[0], all[1:], fmt.Sprint(s.key, "-", round))
		if err != nil {
			return err
		}
		r.Orders = append(r.Orders, strings.Join(served.order, " "))
		r.Served = append(r.Served, took)
		if tokens := rising(served.tokens); round == 0 || tokens == r.Tokens {
			r.Tokens = tokens
		} else {
			r.Tokens = "do not rise"
		}
	}
	now := time.Now()
	for i, p := range all {
		for _, q := range all[:i] {
			r.Both += together(p.active(now), q.active(now))
		}
	}
	return nil
}

// serve has waiters come one after another behind a holder, and says in how long they are
// served when the holder has unlocked.
func (s *stage) serve(served *queue, holder *process, waiters []*process, key string) (time.Duration, error) {
	if err := holder.hold(key, s.ttl); err != nil {
		return 0, err
	}
	for i, p := range waiters {
		next := p.lockUntilHeld(key, s.ttl)
		served.group.Go(func() { served.work(p, i+1, next) })
		time.Sleep(s.ttl / 20)
	}
	begun := time.Now()
	holder.unlock()
	served.group.Wait()
	if len(served.order) < len(waiters) {
		return 0, errors.New("not all waiters were served")
	}
	return time.Since(begun), nil
}

// queue are waiters that are served.
type queue struct {
	group sync.WaitGroup

	mu            sync.Mutex
	order, tokens []string
}

func (q *queue) work(p *process, number int, next <-chan grant) {
	g, ok := receive(next, patience)
	if !ok {
		return
	}
	q.mu.Lock()
	q.order, q.tokens = append(q.order, strconv.Itoa(number)), append(q.tokens, g.token)
	q.mu.Unlock()
	time.Sleep(30 * time.Millisecond)
	p.unlock()
}

// rising says whether tokens rise in the order of grants.
func rising(tokens []string) string {
	last := int64(-1)
	for _, t := range tokens {
		n, err := strconv.ParseInt(t, 10, 64)
		switch {
		case t == "":
			return "none"
		case err != nil || n <= last:
			return "do not rise"
		}
		last = n
	}
	return "rise"
}

func playGhosts(s *stage, r *result) error {
	a, err1 := s.startBehindProxy()
	b, err2 := s.start()
	c, err3 := s.start()
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	key := s.key
	if r.GaveUp = never; !s.endless {
		if err := s.giveUp(a, b, key+"-gave-up"); err != nil {
			return err
		}
		begun := time.Now()
		r.GaveUp = s.next(c, key+"-gave-up", begun)
	}
	if err := a.hold(key+"-killed", s.ttl); err != nil {
		return err
	}
	if err := b.lock(key+"-killed", s.ttl, 0); err != nil {
		return err
	}
	time.Sleep(s.ttl / 20)
	b.kill()
	begun := time.Now()
	a.unlock()
	r.Killed = s.next(c, key+"-killed", begun)

	wait := s.ttl / 4
	if s.endless {
		wait = 0
	}
	s.proxy.Hold(faultproxy.ToClient)
	if err := a.lock(key+"-unheard", s.ttl, wait); err != nil {
		return err
	}
	time.Sleep(s.ttl / 2)
	begun = time.Now()
	s.proxy.Cut()
	s.proxy.Resume()
	r.Caller = "nothing"
	if l, ok := a.answer(s.ttl / 4); ok {
		r.Caller = l.word
		if l.word == "held" {
			begun = time.Now()
			a.unlock()
		}
	}
	r.Unheard = s.next(c, key+"-unheard", begun)
	return nil
}

// giveUp has a waiter give up, and then the holder unlock.
func (s *stage) giveUp(holder, waiter *process, key string) error {
	if err := holder.hold(key, s.ttl); err != nil {
		return err
	}
	if err := waiter.lock(key, s.ttl, s.ttl/8); err != nil {
		return err
	}
	l, ok := waiter.answer(s.ttl)
	holder.unlock()
	if !ok || l.word == "held" {
		return fmt.Errorf("a waiter that should give up within %v says %q", s.ttl/8, l.word)
	}
	return nil
}

// next is how long p waits for the lock, which it then gives back.
func (s *stage) next(p *process, key string, begun time.Time) time.Duration {
	took := since(begun, p.lockUntilHeld(key, s.ttl), 6*s.ttl)
	if took != never {
		p.unlock()
	}
	return took
}

// since is when a grant came.
func since(begun time.Time, next <-chan grant, within time.Duration) time.Duration {
	g, ok := receive(next, within)
	if !ok {
		return never
	}
	return max(g.at.Sub(begun), 1)
}
