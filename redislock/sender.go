package redislock

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/redis/go-redis/v9"
)

const (
	// near is how soon a server answers that a caller may ask on its own goroutine,
	// and hang is how long it waits there before it gives up.
	near = 5 * time.Millisecond
	hang = 100 * time.Millisecond
	// lateMap is how long a node of a Cluster may take to answer before it is asked
	// again who has which slots: go-redis goes on trying meanwhile.
	lateMap = 500 * time.Millisecond
)

// sender sends steps to the server. The first goes at once and alone; those that
// come while it is under way go together, as one pipeline.
//
// A flight is a goroutine of its own: go-redis does not return from a connection
// that hangs when the caller's context ends, and the caller must. That costs two
// switches between goroutines, as much as a server near by takes to answer. So
// while the server is near a caller that is alone asks on its own goroutine, with
// a short time limit; if that passes, the step is sent once more, by a flight. All
// steps can be repeated.
type sender struct {
	rdb        redis.UniversalClient
	quick      *redis.Client        // the same with a short time limit, or nil
	limit      time.Duration        // that one
	listens    time.Duration        // how long the client waits for an answer; 0: for ever
	isNear     atomic.Bool          // the last answer came soon
	cluster    *redis.ClusterClient // nil if rdb is something else
	alone      bool                 // no pipelines
	noPipeline bool                 // … because the user said so
	replicas   replicas
	mapped     atomic.Bool // the cluster client knows its nodes

	only    lane
	mu      sync.Mutex
	lanes   map[*redis.Client]*lane // of a Cluster, one for each node
	detours map[*redis.Client]detour
}

func (s *sender) init(rdb redis.UniversalClient, alone bool) {
	s.rdb, s.alone, s.noPipeline = rdb, alone, alone
	s.only.sender = s
	s.listens = listens(rdb)
	switch c := rdb.(type) {
	case *redis.Client:
		if alone || c == nil {
			break
		}
		limit := hang
		if s.listens > 0 && s.listens < limit {
			limit = s.listens
		}
		s.quick, s.limit = c.WithTimeout(limit), limit
	case *redis.ClusterClient:
		s.cluster = c
		s.lanes = make(map[*redis.Client]*lane)
	default:
		// A Ring has several servers behind one client and does not say which; one
		// that is down would hold up the pipelines of all.
		s.alone = true
	}
}

// listens is how long rdb waits for an answer; 0: for ever, or nobody knows.
func listens(rdb redis.UniversalClient) (d time.Duration) {
	switch c := rdb.(type) {
	case *redis.Client:
		if c != nil {
			d = c.Options().ReadTimeout
		}
	case *redis.ClusterClient:
		if c != nil {
			d = c.Options().ReadTimeout
		}
	case *redis.Ring:
		if c != nil {
			d = c.Options().ReadTimeout
		}
	}
	return max(d, 0)
}

// step is one script to be run for a caller that waits for it.
type step struct {
	script *script
	record string // its first key: where it goes
	single bool   // it works on one lock
	lasts  bool   // replicas are to confirm it, where the Options ask for that
	args   []any  // of EVALSHA
	room   [12]any
	ctx    context.Context

	// It was sent before, and no answer came: it may have been applied then, or may yet be.
	repeated bool

	left atomic.Bool   // the caller has gone: not to be sent if it has not been
	done chan struct{} // has something in it when val and err are there
	cmd  redis.Cmd     // as it is sent first
	val  any
	err  error
	held confirmation // of replicas, if it lasts

	sending  sync.Mutex // held while it is sent another time than the first
	answered bool       // guarded by sending
}

// used are steps for the next callers: most of what a lock costs the collector would be
// steps.
var used = sync.Pool{New: func() any { return &step{done: make(chan struct{}, 1)} }}

// recycle is called when the answer has been read. In a Cluster a detour may still know
// the step, and so does the flight of one that its caller has left.
func (s *sender) recycle(st *step) {
	if s.cluster != nil || st.left.Load() {
		return
	}
	done := st.done
	*st = step{done: done}
	used.Put(st)
}

// command returns the step as it is sent first.
func (st *step) command(ctx context.Context) *redis.Cmd {
	st.cmd = *redis.NewCmd(ctx, st.args...)
	return &st.cmd
}

// newStep makes a step that works on the keys of the given locks.
func newStep(s *script, locks []*names, argv ...any) *step {
	st := used.Get().(*step)
	st.script, st.record, st.single = s, locks[0].record, len(locks) == 1
	st.args = st.room[:0]
	if n := 3 + 3*len(locks) + len(argv); n > len(st.room) {
		st.args = make([]any, 0, n)
	}
	st.args = append(st.args, evalsha, s.sha, 3*len(locks))
	for _, l := range locks {
		st.args = append(st.args, l.args[:]...)
	}
	st.args = append(st.args, argv...)
	return st
}

// step makes a step that works on one lock.
func (b *Backend) step(s *script, key string, argv ...any) *step {
	locks := [1]*names{b.names(key)}
	return newStep(s, locks[:], argv...)
}

var evalsha, eval any = "evalsha", "eval"

// run sends a step and waits for the answer, or until ctx ends. Then nobody knows
// whether the step was applied, unless it had not been sent: it is not sent later.
func (s *sender) run(ctx context.Context, st *step) (any, error) {
	if s.quick != nil && s.isNear.Load() && !s.replicas.confirm(st) {
		if f := s.only.claim(); f != nil {
			ok := s.ask(ctx, st)
			s.only.land(f)
			if ok {
				return st.val, st.err
			}
		}
	}
	s.send(ctx, st)
	return s.wait(ctx, st)
}

// ask sends a step from the caller's goroutine. It reports false if the answer
// did not come in time.
func (s *sender) ask(ctx context.Context, st *step) bool {
	start := time.Now()
	cmd := st.command(ctx)
	err := s.quick.Process(ctx, cmd)
	if unknownScript(err) {
		cmd = st.inFull(ctx)
		err = s.quick.Process(ctx, cmd)
	}
	took := time.Since(start)
	if took > hang/4 {
		s.isNear.Store(false)
	}
	st.repeated = took >= s.limit // go-redis itself sends again what is late
	if isLate(err) && driver.Ended(ctx) == nil {
		s.isNear.Store(false)
		return false
	}
	st.val, st.err = cmd.Result()
	return true
}

// isLate reports whether an answer did not come in time.
func isLate(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}

func (s *sender) send(ctx context.Context, st *step) {
	st.ctx = ctx
	if l := s.lane(ctx, st.record); l != nil {
		l.board(st)
		return
	}
	go func() {
		s.fly([]*step{st})
		if s.cluster != nil && st.err == nil {
			s.mapped.Store(true)
		}
	}()
}

func (s *sender) wait(ctx context.Context, st *step) (any, error) {
	select {
	case <-st.done:
		return st.val, st.err
	case <-ctx.Done():
	}
	// An answer that is there counts, though ctx ended while another was waited for.
	select {
	case <-st.done:
		return st.val, st.err
	default:
	}
	st.left.Store(true)
	return nil, ctx.Err()
}

// lane returns the lane of a record, or nil for one to be sent on its own.
func (s *sender) lane(ctx context.Context, record string) *lane {
	switch {
	case s.alone:
		return nil
	case s.cluster == nil:
		return &s.only
	case !s.mapped.Load():
		// Until a request has gone through, the client asks the cluster for its
		// nodes first, and that may hang.
		return nil
	}
	node, err := s.master(ctx, record)
	if err != nil {
		return nil
	}
	return s.laneOf(node)
}

func (s *sender) laneOf(node *redis.Client) *lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lanes[node]
	if l == nil {
		// Nodes that have gone are forgotten with all others: a lane holds nothing
		// that cannot be built again.
		if len(s.lanes) >= 1024 {
			clear(s.lanes)
		}
		l = &lane{sender: s}
		s.lanes[node] = l
	}
	return l
}

// fly sends steps in one request, and once more those whose script the server
// does not know: it has not applied them.
func (s *sender) fly(steps []*step) {
	steps = s.aboard(steps)
	if len(steps) == 0 {
		return
	}
	ctx, cancel := together(steps)
	defer cancel()
	home := s.home(ctx, steps)
	stop := s.watch(home, steps)
	defer stop()
	start := time.Now()
	cmds := make([]*redis.Cmd, len(steps))
	for i, st := range steps {
		cmds[i] = st.command(ctx)
	}
	s.exec(ctx, steps, cmds)
	s.isNear.Store(time.Since(start) < near)
	s.heed(ctx, home, cmds)
	if home != nil {
		steps, cmds = unanswered(steps, cmds)
	}
	s.redirect(ctx, steps, cmds)
	s.again(ctx, steps, cmds, func(st *step, err error) *redis.Cmd {
		if !unknownScript(err) {
			return nil
		}
		return st.inFull(ctx)
	})
	s.again(ctx, steps, cmds, func(st *step, err error) *redis.Cmd {
		if !st.single || !slotMoves(err) {
			return nil
		}
		return st.withRecordAlone(ctx)
	})
	late := s.listens > 0 && time.Since(start) >= s.listens // go-redis has sent it again
	for i, st := range steps {
		if late {
			st.repeated = true
		}
		st.answer(cmds[i].Result()) // from here on it is its caller's, but for a detour
		if home != nil {
			st.sending.Unlock()
		}
	}
	s.heed(ctx, home, cmds)
}

// heed has the map made anew if an answer says that it is old.
func (s *sender) heed(ctx context.Context, home *redis.Client, cmds []*redis.Cmd) {
	if s.cluster != nil && slices.ContainsFunc(cmds, func(c *redis.Cmd) bool { return mapIsOld(c.Err()) }) {
		s.straighten(home)
		s.cluster.ReloadState(ctx)
	}
}

// unanswered leaves out the steps that a detour has got answers for, and holds the others.
func unanswered(steps []*step, cmds []*redis.Cmd) (ss []*step, cs []*redis.Cmd) {
	for i, st := range steps {
		st.sending.Lock()
		if st.answered {
			st.sending.Unlock()
			continue
		}
		ss, cs = append(ss, st), append(cs, cmds[i])
	}
	return ss, cs
}

// again sends once more what remedy has something for: no step whose error it
// knows was applied.
func (s *sender) again(ctx context.Context, steps []*step, cmds []*redis.Cmd, remedy func(*step, error) *redis.Cmd) {
	var who []*step
	var more []*redis.Cmd
	for i, st := range steps {
		err := cmds[i].Err()
		if err == nil {
			continue
		}
		if c := remedy(st, err); c != nil {
			cmds[i] = c
			who, more = append(who, st), append(more, c)
		}
	}
	s.exec(ctx, who, more)
	s.redirect(ctx, who, more)
}

// unknownScript reports whether the server does not have a script, and so has not
// run it.
func unknownScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// inFull returns the step with the text of its script.
func (st *step) inFull(ctx context.Context) *redis.Cmd {
	return redis.NewCmd(ctx, append([]any{eval, st.script.source}, st.args[2:]...)...)
}

// withRecordAlone returns the step with the first of its keys, as script/record.lua
// describes it.
func (st *step) withRecordAlone(ctx context.Context) *redis.Cmd {
	args := append([]any{eval, st.script.source, 1, st.record}, st.args[6:]...)
	return redis.NewCmd(ctx, args...)
}

// slotMoves reports whether a Cluster did not run a script since the slot is on its
// way, and some of the keys are not where the others are.
func slotMoves(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "TRYAGAIN")
}

// mapIsOld reports whether a request may have gone to a node that has no slots any
// more.
func mapIsOld(err error) bool {
	if err == nil {
		return false
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return true
	}
	for _, begins := range []string{"MOVED", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "LOADING"} {
		if strings.HasPrefix(said(err), begins) {
			return true
		}
	}
	return false
}

// aboard leaves out those whose caller has gone.
func (s *sender) aboard(steps []*step) []*step {
	for i, st := range steps {
		if !st.left.Load() {
			continue
		}
		kept := append([]*step(nil), steps[:i]...)
		for _, st := range steps[i:] {
			if st.left.Load() {
				continue // nobody waits for it
			}
			kept = append(kept, st)
		}
		return kept
	}
	return steps
}

func (s *sender) exec(ctx context.Context, steps []*step, cmds []*redis.Cmd) {
	switch {
	case len(cmds) == 0:
	case slices.ContainsFunc(steps, s.replicas.confirm):
		s.execAndWait(ctx, steps, cmds)
	case s.cluster != nil:
		s.execOnNode(ctx, steps, cmds)
	case len(cmds) == 1:
		_ = s.rdb.Process(ctx, cmds[0])
	default:
		pipe := s.rdb.Pipeline()
		for _, c := range cmds {
			_ = pipe.Process(ctx, c)
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
	}
}

// execOnNode sends steps to the node that has the record of the first. It does not go
// through the ClusterClient, which sends a command several times, by itself and perhaps
// long after a detour has got an answer; and sends all commands of a pipeline again if the
// first one is to be tried again, and those of them that were redirected twice at once: two
// goroutines then write the same answer (seen with go-redis 9.23.0 while a slot moved).
func (s *sender) execOnNode(ctx context.Context, steps []*step, cmds []*redis.Cmd) {
	node, err := s.master(ctx, steps[0].record)
	if err != nil {
		for _, c := range cmds {
			c.SetErr(err)
		}
		return
	}
	if len(cmds) == 1 {
		_ = node.Process(ctx, cmds[0])
		return
	}
	pipe := node.Pipeline()
	for _, c := range cmds {
		_ = pipe.Process(ctx, c)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
}

// redirect sends once more, one by one, what is elsewhere by now, and a step that is alone
// also if its node did not take it: ClusterClient asks others then. What replicas have to
// confirm needs the client of one node.
func (s *sender) redirect(ctx context.Context, steps []*step, cmds []*redis.Cmd) {
	if s.cluster == nil {
		return
	}
	if slices.ContainsFunc(steps, s.replicas.confirm) {
		s.redirectAndWait(ctx, steps, cmds)
		return
	}
	for i, c := range cmds {
		ask, to := redirection(c.Err())
		refused := len(cmds) == 1 && mapIsOld(c.Err()) && !timedOut(c.Err())
		if to == "" && !refused || steps[i].left.Load() {
			continue
		}
		if ask && s.execAsking(ctx, to, c) {
			continue
		}
		alone := redis.NewCmd(ctx, c.Args()...)
		_ = s.cluster.Process(ctx, alone)
		c.SetVal(alone.Val())
		c.SetErr(alone.Err())
	}
}

// execAsking sends a command to the node that a slot is on its way to, and reports false if
// that one is not known. ClusterClient would send it there and back again, with pauses, when
// some of its keys are elsewhere; a lease of seconds may not last as long on a busy machine.
func (s *sender) execAsking(ctx context.Context, to string, c *redis.Cmd) bool {
	node := s.nodeAt(ctx, to)
	if node == nil {
		return false
	}
	pipe := node.Pipeline()
	_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking"))
	_ = pipe.Process(ctx, c)
	_, _ = pipe.Exec(ctx) // each command has its own error
	return true
}

// timedOut reports whether a node was silent: it may hang, and would be asked again first.
func timedOut(err error) bool {
	return isLate(err) || errors.Is(err, context.Canceled)
}

// together returns the context of a flight: it ends when the last of those aboard
// wants to, so that nobody's haste cuts off another.
func together(steps []*step) (context.Context, context.CancelFunc) {
	if len(steps) == 1 {
		return steps[0].ctx, func() {}
	}
	var end time.Time
	for _, st := range steps {
		d, ok := st.ctx.Deadline()
		if !ok {
			return context.WithCancel(context.Background())
		}
		if d.After(end) {
			end = d
		}
	}
	return context.WithDeadline(context.Background(), end)
}
