//go:build verify

package others

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/verify/others/adapters"
)

// moveLease is the lease of each lock while a fleet moves.
const moveLease = 3 * time.Second

// stuck is how long no program waits in a line that makes progress: stores are back in a second or two.
const stuck = time.Minute

// phases is how the programs of a fleet take their lock in each phase: command lines of adapters, and URLs for those
// of fencelock.
type phases struct {
	commands [3][][]string
	urls     [3][]string
	foreign  bool // the programs of the first phase are of another library
	sessions bool // the locks of the old store end with it, and the other library does not notice
	lineless bool // claims on the old store have no order: a program may wait for long while others get the lock
	way      []int
}

// move is a fleet of processes under way.
type move struct {
	t   *testing.T
	old string
	p   phases

	mu      sync.Mutex
	held    []hadLock
	wrong   []string
	started map[string]bool // libraries
}

// hadLock is a time in which a process believed that it had the lock.
type hadLock struct {
	span
	who, library string
	token        int64
}

// thereAndBack are the phases of a fleet that moves, and then moves back.
var thereAndBack = []int{0, 1, 2, 1, 0}

// TestFleetsOfRealProgramsMove moves fleets of programs of other libraries to fencelock and back, and fleets of
// fencelock from store to store. Processes are killed with kill -9 and stopped past their leases, and both stores
// are restarted. FENCELOCK_MOVE_FOR is how long; 30 s if it is not set.
func TestFleetsOfRealProgramsMove(t *testing.T) {
	if _, err := os.Stat("adapters/node/node_modules"); err != nil {
		t.Fatalf("two fleets need packages of Node.js: %v; make verify WHAT=others installs them, or run npm ci there", err)
	}
	redis := func() *testserver.Server { return testserver.Redis(t, testserver.Persist(true)) }
	setnx := [][]string{goAdapter("redsync"), goAdapter("bsm"), python("redis-py"), node("redlock")}
	postgresStore := append(slices.Clone(symfony[:2]), "symfony-postgres", "{ttl}")
	for _, c := range []struct {
		name      string
		old, new  *testserver.Server
		libraries [][]string // nil if the old store is one of fencelock
		format    string     // of their locks
	}{
		{"from redsync, bsm, redis-py and node-redlock", redis(), redis(), setnx, "setnx"},
		{"from redis-semaphore", redis(), redis(), [][]string{node("redis-semaphore")}, "redis-semaphore"},
		{"from Symfony Lock", testserver.Postgres(t), redis(), [][]string{postgresStore}, "symfony"},
		{"from etcd concurrency", testserver.Etcd(t, testserver.Persist(true)), redis(), [][]string{goAdapter("etcd-concurrency")}, "mutex"},
		{"from Redis to PostgreSQL", redis(), testserver.Postgres(t), nil, ""},
		{"from Redis to etcd", redis(), testserver.Etcd(t, testserver.Persist(true)), nil, ""},
		{"from PostgreSQL to Redis", testserver.Postgres(t), redis(), nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := betweenStores(c.old, c.new)
			if c.libraries != nil {
				p.commands[0], p.foreign, p.sessions = c.libraries, true, c.format == "symfony"
				p.lineless = c.format == "setnx" || c.format == "redis-semaphore"
				p.urls[1] = []string{"bridge:" + formatted(urlOf(c.old), c.format) + "," + urlOf(c.new)}
			}
			m := &move{t: t, old: c.old.Addr(), p: p, started: map[string]bool{}}
			m.run(c.old, c.new)
			for _, wrong := range m.judge() {
				t.Error(wrong)
			}
		})
	}
}

// Some programs take the two stores in the other order, as those of a bridge that swaps them would.
func TestFleetsOfRealProgramsSeeSwappedStores(t *testing.T) {
	t.Parallel()
	old, new := testserver.Redis(t, testserver.Persist(true)), testserver.Postgres(t)
	p := betweenStores(old, new)
	p.urls[1] = append(p.urls[1], "bridge:"+urlOf(new)+","+urlOf(old))
	p.way = []int{1, 1}
	m := &move{t: t, old: old.Addr(), p: p, started: map[string]bool{}}
	m.run(old, new)
	if wrong := strings.Join(m.judge(), "\n"); !strings.Contains(wrong, "waited for") {
		t.Errorf("no two programs waited for each other: %s", wrong)
	}
}

// betweenStores is a fleet of fencelock that moves from one store to another.
func betweenStores(old, new *testserver.Server) phases {
	store := [][]string{goAdapter("store")}
	oldURL, newURL := urlOf(old), urlOf(new)
	return phases{
		commands: [3][][]string{store, store, store},
		urls:     [3][]string{{oldURL}, {"bridge:" + oldURL + "," + newURL}, {newURL}},
		way:      thereAndBack,
	}
}

// formatted is the URL of the old store of a bridge with the locks of another library.
func formatted(raw, format string) string {
	u, _ := url.Parse(raw)
	if u.Scheme == "etcd" {
		u.Path = "/locks"
	}
	q := u.Query()
	q.Set("format", format)
	u.RawQuery = q.Encode()
	return u.String()
}

func urlOf(s *testserver.Server) string {
	if url := s.URL(); strings.Contains(url, "://") {
		return url
	}
	return "etcd://" + s.Addr()
}

func (m *move) fail(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
}

// run moves six slots through the phases. All have left a phase before one enters the phase after the next.
func (m *move) run(old, new *testserver.Server) {
	whole, err := time.ParseDuration(cmp.Or(os.Getenv("FENCELOCK_MOVE_FOR"), "30s"))
	steps.Must(m.t, err)
	stage := whole / time.Duration(len(m.p.way))
	var changes [len("012345")]chan int
	var slots sync.WaitGroup
	for i := range changes {
		changes[i] = make(chan int)
		slots.Go(func() { m.slot(i, changes[i]) })
	}
	for n, phase := range m.p.way {
		var all sync.WaitGroup
		for i := range changes {
			all.Go(func() {
				if n > 0 {
					time.Sleep(rand.N(stage / 2)) // real time: programs are deployed one by one
				}
				changes[i] <- phase
				changes[i] <- phase // the program of the phase before has ended
			})
		}
		all.Wait()
		time.Sleep(stage / 4) // real time: a phase lasts
		for _, s := range m.restarts(n, old, new) {
			steps.OK(m.t, cmp.Or(s.Kill(), s.Restart()))
		}
		time.Sleep(stage / 4) // real time: as above
	}
	for i := range changes {
		close(changes[i])
	}
	slots.Wait()
}

// restarts returns the stores that are restarted in the stage n: those that its programs use, but one at a time.
func (m *move) restarts(n int, old, new *testserver.Server) []*testserver.Server {
	switch phase := m.p.way[n]; {
	case phase == 2 || phase == 1 && (n > len(m.p.way)/2 || m.p.sessions):
		return []*testserver.Server{new}
	case m.p.sessions:
		return nil
	}
	return []*testserver.Server{old}
}

// slot runs one program after another: that of the phase that comes from changes, and a new one after a kill.
func (m *move) slot(i int, changes <-chan int) {
	phase := <-changes
	<-changes
	for n := i; ; n++ {
		p, library := m.start(phase, n)
		if p == nil { // its store is away, or it does not start at all
			select {
			case next, ok := <-changes:
				if !ok {
					return
				}
				phase = next
				<-changes
			case <-time.After(askAgain): // real time: it is started again
			}
		}
		for p != nil {
			select {
			case next, ok := <-changes:
				if rand.N(2) == 0 {
					_ = p.lock("order", moveLease, 0) // killed while it waits
				}
				p.kill()
				if !ok {
					return
				}
				phase, p = next, nil
				<-changes
			default:
				if !m.work(p, hadLock{who: fmt.Sprintf("%d.%d", phase, i), library: library}) {
					p.kill()
					p = nil
				}
			}
		}
	}
}

// start starts the n-th program of a phase, and returns its library too.
func (m *move) start(phase, n int) (*process, string) {
	all, urls := m.p.commands[phase], m.p.urls[phase]
	self, err := os.Executable()
	steps.OK(m.t, err)
	dir, _ := filepath.Abs("adapters")
	fill := strings.NewReplacer("{self}", self, "{dir}", dir, "{ttl}", strconv.FormatInt(moveLease.Milliseconds(), 10))
	command, library := []string{"env", adapters.EnvURL + "=" + urls[n%len(urls)]}, named(all[n%len(all)], phase)
	for _, word := range append(slices.Clone(all[n%len(all)]), m.old) {
		command = append(command, fill.Replace(word))
	}
	p, err := startProcess(command, nil)
	if err != nil {
		return nil, library // its store is away
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.started[library] = true
	return p, library
}

// work takes the lock once. It reports false if the process is to be replaced.
func (m *move) work(p *process, h hadLock) bool {
	sent := time.Now()
	if p.lock("order", moveLease, 0) != nil {
		return false
	}
	l, ok := p.answer(stuck)
	if !ok && time.Since(sent) >= stuck && !(m.p.lineless && m.grantsSince(sent)) {
		m.fail("%s, %s, waited for %v", h.who, h.library, stuck)
	}
	if !ok || l.word != "held" {
		time.Sleep(askAgain) // real time: the store may be away
		return ok && l.word == "refused"
	}
	h.from, h.token = l.at, m.token(h.who, l.rest)
	bound := sent.Add(moveLease * 9 / 10) // it had the lock no longer than a lease that nobody renews
	fault := rand.N(40)
	time.Sleep(rand.N(20 * time.Millisecond)) // real time: the others must have a chance to come in
	switch ends := time.Now(); fault {
	case 0:
		p.kill()
		m.note(p, h, earlier(ends, bound))
		return false
	case 1:
		steps.OK(m.t, p.stop())
		m.note(p, h, earlier(ends, bound))
		time.Sleep(moveLease * 3 / 2) // real time: its lease must end
		_ = p.goOn()
		p.unlock()
	case 2:
		time.Sleep(moveLease * 3 / 2) // real time: fencelock renews the lock meanwhile
		ends := time.Now()
		if p.unlock().word != "released" {
			ends = earlier(ends, bound)
		}
		m.note(p, h, ends)
	default:
		m.note(p, h, earlier(ends, bound))
		p.unlock()
	}
	return true
}

// grantsSince reports whether a program was granted the lock after t.
func (m *move) grantsSince(t time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.held, func(h hadLock) bool { return h.from.After(t) })
}

// token is the token of a grant; 0 if it is the other library's own number.
func (m *move) token(who, text string) int64 {
	if m.p.foreign && strings.HasPrefix(who, "0.") {
		return 0
	}
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// note writes down that p had the lock until ends, but no longer than its library told it.
func (m *move) note(p *process, h hadLock, ends time.Time) {
	h.to = ends
	if told, ok := p.firstTold(h.from); ok {
		h.to = earlier(h.to, told.at)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = append(m.held, h)
}

// judge returns what was wrong: two that had the lock at once, tokens that fall, a program that waited for too long.
func (m *move) judge() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.SortFunc(m.held, func(a, b hadLock) int { return a.from.Compare(b.from) })
	var last, latest hadLock
	tokens, grants := 0, map[string]int{}
	for _, h := range m.held {
		grants[h.library]++
		if h.from.Before(latest.to) {
			m.wrong = append(m.wrong, fmt.Sprintf("%v and %v had the lock at once, for %v", latest, h, latest.to.Sub(h.from)))
		}
		if h.to.After(latest.to) {
			latest = h
		}
		if h.token == 0 {
			continue
		}
		if tokens++; h.token <= last.token {
			m.wrong = append(m.wrong, fmt.Sprintf("the token falls: %v, then %v", last, h))
		}
		last = h
	}
	m.t.Logf("%d grants, %d of them with a token: %v", len(m.held), tokens, grants)
	if tokens < 10 {
		m.wrong = append(m.wrong, fmt.Sprintf("%d grants had a token: the programs hardly ran", tokens))
	}
	for _, phase := range m.p.way {
		for _, c := range m.p.commands[phase] {
			if name := named(c, phase); !m.started[name] {
				m.wrong = append(m.wrong, name+" never ran")
			}
		}
	}
	return m.wrong
}

// named is the library of a command line, in a phase.
func named(command []string, phase int) string {
	return fmt.Sprintf("%s in phase %d", command[2], phase)
}

func (h hadLock) String() string { return fmt.Sprintf("%s (%s, token %d)", h.who, h.library, h.token) }
