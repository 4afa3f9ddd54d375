package redislock

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// A master of a Cluster that dies refuses connections, and its locks are asked for
// elsewhere as soon as a replica has taken its place. One that hangs says nothing: the
// client waits for its ReadTimeout, three seconds by default, at each request, and may
// wait as long again because it asks that very node who has which slots. So while a
// request is late, what it carries is tried at the node that may have become master:
// a replica that has not answers MOVED, and nothing has happened.
//
// What a detour has got an answer for is not sent again by the flight that was late: a
// Leave may have followed, and the step would do what nobody wants any more. Each of
// the two holds the step while it sends it, but for the flight's first time: that copy
// is with a master that is none, and ends there.

// answer ends a step. sending is held where there may be a detour.
func (st *step) answer(val any, err error) {
	st.val, st.err = val, err
	st.answered = true
	st.done <- struct{}{}
}

// home returns where a flight goes to, and nil if that is one server for ever, or not
// known yet.
func (s *sender) home(ctx context.Context, steps []*step) *redis.Client {
	if s.cluster == nil || !s.mapped.Load() {
		return nil
	}
	node, err := s.master(ctx, steps[0].record)
	if err != nil {
		return nil
	}
	return node
}

// goRound tries steps that home does not answer at the node that may have taken its
// place, and has that one's replicas confirm what they must.
func (s *sender) goRound(home *redis.Client, steps []*step) {
	ctx, cancel := context.WithTimeout(context.Background(), lateMap)
	defer cancel()
	var tried []*step
	for _, st := range steps {
		if st.left.Load() || !st.sending.TryLock() {
			continue
		}
		if st.answered {
			st.sending.Unlock()
			continue
		}
		tried = append(tried, st)
	}
	defer func() {
		for _, st := range tried {
			st.sending.Unlock()
		}
	}()
	if len(tried) == 0 {
		return
	}
	to := s.heir(ctx, home, tried[0].record)
	if to == nil {
		return
	}
	quick := to.WithTimeout(lateMap)
	pipe := quick.Pipeline()
	cmds := make([]*redis.Cmd, len(tried))
	for i, st := range tried {
		cmds[i] = st.inFull(ctx) // a new master has not heard of scripts
		_ = pipe.Process(ctx, cmds[i])
	}
	wait := s.replicas.wait(ctx, quick)
	if slices.ContainsFunc(tried, s.replicas.confirm) {
		_ = pipe.Process(ctx, wait)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	answered := false
	for i, st := range tried {
		// Errors are left to the flight: most are of the node, and not of the step. What too
		// few replicas have confirmed is tried again: they may not have found their new
		// master yet.
		val, err := cmds[i].Result()
		if err != nil || s.replicas.confirm(st) && !st.held.enough(wait, s.replicas.majority()) {
			continue
		}
		st.repeated = true
		st.answer(val, nil)
		answered = true
	}
	if answered {
		s.divert(ctx, tried[0].record, to)
	}
}

// heir returns the node that may have taken the place of home: the master by a map that
// is newer, or else a replica.
func (s *sender) heir(ctx context.Context, home *redis.Client, record string) *redis.Client {
	if node, err := s.master(ctx, record); err == nil && node != home {
		return node
	}
	if node, err := s.cluster.SlaveForKey(ctx, record); err == nil && node != home {
		return node
	}
	return nil
}

// divert has all that is for the master of a record, by the client's map, sent to
// another node, until the map is newer or that node says otherwise: also what waits for
// a seat.
func (s *sender) divert(ctx context.Context, record string, to *redis.Client) {
	old, err := s.cluster.MasterForKey(ctx, record)
	if err != nil || old == to {
		return
	}
	s.mu.Lock()
	if s.detours == nil {
		s.detours = make(map[*redis.Client]detour)
	}
	s.detours[old] = detour{to, time.Now().Add(longestDetour)}
	stuck := s.lanes[old]
	s.mu.Unlock()
	if stuck == nil {
		return
	}
	for _, st := range stuck.clear() {
		s.laneOf(to).board(st)
	}
}

// straighten ends a detour to a node that does not have what was asked for.
func (s *sender) straighten(at *redis.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for old, d := range s.detours {
		if d.to == at {
			delete(s.detours, old)
		}
	}
}

// detour is the way round a master that hangs.
type detour struct {
	to  *redis.Client
	end time.Time
}

// longestDetour is until go-redis must have a newer map: it asks after ten seconds, and
// one that hangs may be whom it asks.
const longestDetour = 20 * time.Second

// instead returns the node that stands in for the master that the map names.
func (s *sender) instead(node *redis.Client) *redis.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.detours[node]
	if !ok {
		return node
	}
	if time.Now().After(d.end) {
		delete(s.detours, node)
		return node
	}
	return d.to
}

// clear returns who waits for a seat, and lets them go.
func (l *lane) clear() []*step {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.queue
	if len(waiting) > 0 {
		l.queue = nil
		l.late.Stop()
	}
	return waiting
}

// watch asks the Cluster again and again who has which slots, and tries detours, until
// stop is called: a flight should be back by then. go-redis asks when a node says MOVED;
// one that is dead says nothing, and its locks would wait until the map is old, for ten
// seconds and more.
func (s *sender) watch(home *redis.Client, steps []*step) (stop func()) {
	if s.cluster == nil {
		return func() {}
	}
	back := make(chan struct{})
	late := time.AfterFunc(lateMap, func() {
		for {
			s.cluster.ReloadState(context.Background())
			if home != nil {
				s.goRound(home, steps)
			}
			timer := time.NewTimer(lateMap)
			select {
			case <-timer.C:
			case <-back:
				timer.Stop()
				return
			}
		}
	})
	return func() {
		late.Stop()
		close(back)
	}
}
