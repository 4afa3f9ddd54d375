package quorumlock_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testmember"
)

// The nodes are memlock members with clocks of their own, behind links that lose and delay. That the simulation
// finds a broken rule is shown by verify/mutants, which breaks each rule of the members.

// What the nodes of the simulation take each other's clocks for.
var simMembership = ballot.Membership{Skew: 500 * time.Millisecond, MaxTTL: 1100 * time.Millisecond}

// simNode is one node. Its clock is ahead of the true one by offset, which is seen in
// its ballots alone.
type simNode struct {
	*testmember.Member
	offset int64 // µs

	down atomic.Bool
	mu   sync.Mutex
}

func newSimNode(offset time.Duration) *simNode {
	n := &simNode{Member: testmember.New(simMembership), offset: offset.Microseconds()}
	n.Member.Initialise(context.Background())
	return n
}

func (n *simNode) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	return n.enter(ctx, c, n.Member.Enter)
}

func (n *simNode) Reenter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	return n.enter(ctx, c, n.Member.Reenter)
}

// enters is Enter or Reenter.
type enters = func(context.Context, driver.Claim) (driver.Ticket, error)

func (n *simNode) enter(ctx context.Context, c driver.Claim, inner enters) (driver.Ticket, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c.Ballot -= n.offset
	t, err := inner(ctx, c)
	t.Token += n.offset
	switch e := err.(type) { // a Store wraps nothing; errors.As takes a tenth of a run
	case ballot.Error:
		err = ballot.Error{Last: e.Last + n.offset}
	case *driver.BusyError:
		e.Token += n.offset
	}
	return t, err
}

// link is a node as one client reaches it.
type link struct {
	*simNode
	mu  sync.Mutex
	rng *rand.Rand
}

// journey is what happens to one request.
type journey struct {
	there, back time.Duration
	lost, mute  bool
}

func (l *link) draw() journey {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := func() time.Duration {
		if l.rng.IntN(12) == 0 {
			return time.Duration(l.rng.Int64N(int64(300 * time.Millisecond)))
		}
		return time.Duration(l.rng.Int64N(int64(4 * time.Millisecond)))
	}
	return journey{d(), d(), l.rng.IntN(40) == 0, l.rng.IntN(40) == 0}
}

// send is one request and its reply. A request that is under way arrives though its
// sender has given up.
func send[A any](l *link, ctx context.Context, f func(ctx context.Context) A) (a A, err error) {
	j := l.draw()
	if j.lost {
		<-ctx.Done()
		return a, ctx.Err()
	}
	answer := make(chan A, 1)
	go func() {
		time.Sleep(j.there)
		if l.down.Load() {
			return
		}
		a := f(context.Background())
		if !j.mute {
			time.Sleep(j.back)
			answer <- a
		}
	}()
	select {
	case a = <-answer:
		return a, nil
	case <-ctx.Done():
		return a, ctx.Err()
	}
}

type entered struct {
	t   driver.Ticket
	err error
}

func (l *link) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	return l.enter(ctx, c, l.simNode.Enter)
}

func (l *link) Reenter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	return l.enter(ctx, c, l.simNode.Reenter)
}

func (l *link) enter(ctx context.Context, c driver.Claim, inner enters) (driver.Ticket, error) {
	a, err := send(l, ctx, func(ctx context.Context) entered {
		t, err := inner(ctx, c)
		return entered{t, err}
	})
	return a.t, cmp.Or(err, a.err)
}

func (l *link) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs, err := send(l, ctx, func(ctx context.Context) []error { return l.Member.Renew(ctx, ts) })
	if err != nil {
		errs = make([]error, len(ts))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

func (l *link) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	left, err := send(l, ctx, func(ctx context.Context) error { return l.Member.Leave(ctx, t, e) })
	return cmp.Or(err, left)
}

// grant is one acquisition as its holder saw it.
type grant struct {
	who             string
	began, acquired time.Time
	until           time.Time // believed until then
	token, span     int64
}

func (g grant) String() string {
	return fmt.Sprintf("%s %d+%d asked %s got %s until %s", g.who, g.token, g.span,
		g.began.Format("05.000000"), g.acquired.Format("05.000000"), g.until.Format("05.000000"))
}

// result is what was wrong with the grants of one run.
type result struct {
	grants, duplicates, disorder, overlaps int
	example                                string
}

func (v result) bad() int { return v.duplicates + v.disorder + v.overlaps }

// judge looks at all pairs: no token twice, none below that of a grant that was over
// and done before this one was asked for, and never two holders at a time.
func judge(grants []grant) result {
	v := result{grants: len(grants)}
	note := func(n *int, what string, a, b grant) {
		*n++
		if v.example == "" {
			v.example = fmt.Sprintf("%s:\n  %v\n  %v", what, a, b)
		}
	}
	for i, a := range grants {
		for _, b := range grants[i+1:] {
			if b.acquired.Before(a.acquired) {
				a, b = b, a
			}
			switch {
			case a.token < b.token+b.span && b.token < a.token+a.span:
				note(&v.duplicates, "one token twice", a, b)
			case a.acquired.Before(b.began) && b.token < a.token:
				note(&v.disorder, "a later grant has a smaller token", a, b)
			}
			if b.acquired.Before(a.until) {
				note(&v.overlaps, "two hold at once", a, b)
			}
		}
	}
	return v
}

// Thousands of runs are played by processes of their own, without the race detector and on one
// processor each: a run takes a tenth of the time there.

// childVariable says to a process that it is one of those, and which seeds it plays: those
// from the first number up to the second.
const childVariable = "FENCELOCK_SIM_SEEDS"

// child is this test without the race detector. It is built once.
var child = sync.OnceValues(func() (path string, err error) {
	if !raceEnabled {
		return os.Executable()
	}
	dir, err := os.MkdirTemp("", "simulation")
	if err != nil {
		return "", err
	}
	built = dir
	path = filepath.Join(dir, "simulation.test")
	if out, err := exec.Command("go", "test", "-race=false", "-c", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the simulation without the race detector: %w\n%s", err, out)
	}
	return path, nil
})

var built string // the folder that it was built in, or ""

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

// play runs one test in a process of its own, and returns what it logs.
func play(t *testing.T, name, seeds string) string {
	t.Helper()
	path, err := child()
	steps.Must(t, err)
	cmd := exec.CommandContext(t.Context(), path, "-test.v", "-test.count=1", "-test.run=^"+name+"$")
	cmd.Env = append(os.Environ(), childVariable+"="+seeds,
		"GOMAXPROCS=1", "GOGC=400", "GODEBUG=adaptivestackstart=1") // goroutines by the million, with deep stacks
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s with seeds %s: %v\n%s", name, seeds, err, out)
	}
	return strings.Join(regexp.MustCompile(`(?m)^ +\S+_test\.go:\d+: (.*)$`).FindAllString(string(out), -1), "\n")
}

// elsewhere runs this test in a process of its own, and reports whether it did: in that
// process itself it does not.
func elsewhere(t *testing.T) bool {
	if os.Getenv(childVariable) != "" {
		return false
	}
	t.Log(play(t, t.Name(), "0-0"))
	return true
}
