//go:build verify

package others

import (
	"cmp"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/verify/others/adapters"
)

// moveLease is the lease of each lock while a fleet moves.
const moveLease = 3 * time.Second

// phases is how the programs of a fleet take their lock in each phase: command lines of adapters, with {old} for the
// address of the old store, and the URLs of EnvNew.
type phases struct {
	commands [3][][]string
	urls     [3]string
	foreign  bool // the programs of the first phase are of another library
}

// move is a fleet of processes under way.
type move struct {
	t   *testing.T
	old string
	p   phases

	mu   sync.Mutex
	held []hadLock
}

// hadLock is a time in which a process believed that it had the lock.
type hadLock struct {
	span
	who   string
	token int64
}

// TestFleetsOfRealProgramsMove moves fleets of programs of other libraries to fencelock and back, and fleets of
// fencelock from store to store. Processes are killed with kill -9 and stopped past their leases, and both stores
// are restarted. FENCELOCK_MOVE_FOR is how long; 30 s if it is not set.
func TestFleetsOfRealProgramsMove(t *testing.T) {
	redis := func() *testserver.Server { return testserver.Redis(t, testserver.Persist(true)) }
	libraries := [][]string{goAdapter("redsync"), goAdapter("bsm"), python("redis-py")}
	store := [][]string{goAdapter("store")}
	for _, c := range []struct {
		name     string
		old, new *testserver.Server
		first    [][]string
		bridge   []string
	}{
		{"from redsync, bsm and redis-py", redis(), redis(), libraries, goAdapter("bridge-setnx")},
		{"from etcd concurrency", testserver.Etcd(t), redis(), [][]string{goAdapter("etcd-concurrency")}, goAdapter("bridge-mutex")},
		{"from Redis to PostgreSQL", redis(), testserver.Postgres(t), store, nil},
		{"from Redis to etcd", redis(), testserver.Etcd(t), store, nil},
		{"from PostgreSQL to Redis", testserver.Postgres(t), redis(), store, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			oldURL, newURL := urlOf(c.old), urlOf(c.new)
			p := phases{
				commands: [3][][]string{c.first, store, store},
				urls:     [3]string{oldURL, "bridge:" + oldURL + "," + newURL, newURL},
			}
			if c.bridge != nil {
				p.commands[1], p.urls[1], p.foreign = [][]string{c.bridge}, newURL, true
			}
			m := &move{t: t, old: c.old.Addr(), p: p}
			m.run(c.old, c.new)
			m.judge()
		})
	}
}

func urlOf(s *testserver.Server) string {
	if url := s.URL(); strings.Contains(url, "://") {
		return url
	}
	return "etcd://" + s.Addr()
}

// run moves six slots through the phases and back. All have left a phase before one enters the phase after the next.
func (m *move) run(stores ...*testserver.Server) {
	whole, err := time.ParseDuration(cmp.Or(os.Getenv("FENCELOCK_MOVE_FOR"), "30s"))
	if err != nil {
		m.t.Fatal(err)
	}
	way := []int{0, 1, 2, 1, 0}
	stage := whole / time.Duration(len(way))
	var changes [len("012345")]chan int
	var slots sync.WaitGroup
	for i := range changes {
		changes[i] = make(chan int)
		slots.Go(func() { m.slot(i, changes[i]) })
	}
	for n, phase := range way {
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
		if n == 1 || n == 3 {
			s := stores[n/2]
			if err := cmp.Or(s.Kill(), s.Restart()); err != nil {
				m.t.Error(err)
			}
		}
		time.Sleep(stage / 4) // real time: as above
	}
	for i := range changes {
		close(changes[i])
	}
	slots.Wait()
}

// slot runs one program after another: that of the phase that comes from changes, and a new one after a kill.
func (m *move) slot(i int, changes <-chan int) {
	phase := <-changes
	<-changes
	for n := 0; ; n++ {
		p := m.start(phase, i+n)
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
				if !m.work(p, phase, strconv.Itoa(phase)+"."+strconv.Itoa(i)) {
					p.kill()
					p = nil
				}
			}
		}
	}
}

func (m *move) start(phase, n int) *process {
	all := m.p.commands[phase]
	self, err := os.Executable()
	if err != nil {
		m.t.Error(err)
	}
	dir, _ := filepath.Abs("adapters")
	fill := strings.NewReplacer("{self}", self, "{dir}", dir, "{ttl}", strconv.FormatInt(moveLease.Milliseconds(), 10))
	command := []string{"env", adapters.EnvNew + "=" + m.p.urls[phase]}
	for _, word := range append(slices.Clone(all[n%len(all)]), m.old) {
		command = append(command, fill.Replace(word))
	}
	p, err := startProcess(command, nil)
	if err != nil {
		return nil // its store is away
	}
	return p
}

// work takes the lock once. It reports false if the process is to be replaced.
func (m *move) work(p *process, phase int, who string) bool {
	sent := time.Now()
	if p.lock("order", moveLease, 0) != nil {
		return false
	}
	l, ok := p.answer(time.Minute)
	if !ok || l.word != "held" {
		time.Sleep(askAgain) // real time: the store may be away
		return ok && l.word == "refused"
	}
	fault := rand.N(40)
	time.Sleep(rand.N(20 * time.Millisecond)) // real time: the others must have a chance to come in
	switch ends := time.Now(); fault {
	case 0:
		p.kill()
		m.note(p, sent, span{l.at, ends}, who, l.rest)
		return false
	case 1:
		if err := p.stop(); err != nil {
			m.t.Error(err)
		}
		m.note(p, sent, span{l.at, ends}, who, l.rest)
		time.Sleep(moveLease * 3 / 2) // real time: its lease must end
		_ = p.goOn()
		p.unlock()
	default:
		m.note(p, sent, span{l.at, ends}, who, l.rest)
		p.unlock()
	}
	return true
}

// note writes down that p had the lock. It had it no longer than its library told it, and than a lease that nobody
// renews.
func (m *move) note(p *process, sent time.Time, s span, who, token string) {
	if told, ok := p.firstTold(s.from); ok {
		s.to = earlier(s.to, told.at)
	}
	s.to = earlier(s.to, sent.Add(moveLease*9/10))
	n, _ := strconv.ParseInt(token, 10, 64)
	if m.p.foreign && strings.HasPrefix(who, "0.") {
		n = 0 // the other library's own number
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = append(m.held, hadLock{s, who, n})
}

// judge looks for two that had the lock at once, and for tokens that fall.
func (m *move) judge() {
	slices.SortFunc(m.held, func(a, b hadLock) int { return a.from.Compare(b.from) })
	var last hadLock
	tokens := 0
	for i, h := range m.held {
		if i > 0 && h.from.Before(m.held[i-1].to) {
			m.t.Errorf("%s and %s had the lock at once, for %v", m.held[i-1].who, h.who, m.held[i-1].to.Sub(h.from))
		}
		if h.token == 0 {
			continue
		}
		if tokens++; h.token <= last.token {
			m.t.Errorf("%s has the token %d after %s had %d", h.who, h.token, last.who, last.token)
		}
		last = h
	}
	m.t.Logf("%d grants, %d of them with a token", len(m.held), tokens)
	if tokens < 10 {
		m.t.Errorf("%d grants had a token: the programs hardly ran", tokens)
	}
}
