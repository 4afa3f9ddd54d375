package redislock

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// FLUSHALL and SCRIPT FLUSH in a loop beside holders and waiters: no call fails or hangs, losers are told,
// and nothing that was flushed comes back.
func TestFlushAllInALoopUnderLoad(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	g := &group{t: t, single: s}
	l := startTraffic(t, g, 15*time.Second, []string{"a", "b", "c"}, nil)
	l.twoMasters = true // a grant from before a FLUSHALL may reach its holder after one from behind it
	kept := lock(t, client(t, g, time.Minute, nil), "kept")
	tick := time.NewTicker(15 * time.Millisecond)
	defer tick.Stop()
	for i := range 100 {
		ask(t, s, "FLUSHALL")
		if i%5 == 0 {
			ask(t, s, "SCRIPT", "FLUSH")
		}
		<-tick.C
	}
	l.goesOn("the last FLUSHALL")
	l.report()
	ask(t, s, "FLUSHALL")
	for name, err := range map[string]error{"Renew": kept.Renew(t.Context()), "Release": kept.Release(t.Context())} {
		if !errors.Is(err, fencelock.ErrLost) {
			t.Errorf("%s of a lock that was flushed answered %v", name, err)
		}
	}
	if names := ask(t, s, "KEYS", "*"); names != "" {
		t.Errorf("%q came back after the last FLUSHALL", names)
	}
}

// loseLastStep kills the server, takes a byte off the end of its append-only file, and starts it again. What a step
// writes is in the file as one transaction.
func loseLastStep(t *testing.T, s *testserver.Server, b *Backend) {
	t.Helper()
	must(t, s.Kill())
	file := filepath.Join(s.Dir(), "appendonly.aof")
	if _, err := os.Stat(file); err != nil { // since Redis 7.0
		all, err := filepath.Glob(filepath.Join(s.Dir(), "appendonlydir", "*.incr.aof"))
		must(t, err)
		file = all[len(all)-1]
	}
	info, err := os.Stat(file)
	must(t, err)
	must(t, os.Truncate(file, info.Size()-1))
	must(t, s.Restart())
	noticed(t, b)
}

// A power cut takes the tail of the append-only file. The server comes back with whole steps. What
// it has forgotten is a loss at the next renewal, the rest goes on, and tokens rise.
func TestTailOfTheAppendOnlyFileIsLost(t *testing.T) {
	t.Parallel()
	s := newServer(t, testserver.Persist(true))
	b := patient(t, s.Addr(), nil) // else a cut may lose what was sent again, and not the step
	held, first := hold(t, b, mutex("key")), wait_(t, b, mutex("key"))
	// A third claim of one line is lost, which writes three keys.
	second := wait_(t, b, mutex("key"))
	loseLastStep(t, s, b)
	if l := line(t, b, "key"); len(l.Claims) != 2 || !l.Claims[0].Granted || l.Claims[1].Granted {
		t.Errorf("the line is %+v; want who held and who waited first", l)
	}
	ok(t, errors.Join(b.Renew(t.Context(), []driver.Ticket{held, first})...))
	wantGone(t, "the claim that was lost", renew(t, b, second))
	again := wait_(t, b, mutex("key"))
	leave(t, b, held)
	granted(t, b, first)
	leave(t, b, first)
	granted(t, b, again)
	leave(t, b, again)
	// A grant is lost, and the lock with it: its holder is told, and its token stays
	// behind the next one.
	lost := hold(t, b, mutex("other"))
	loseLastStep(t, s, b)
	wantGone(t, "Renew of a grant that the server has forgotten", renew(t, b, lost))
	next := hold(t, b, mutex("other"))
	steps.Rises(t, lost.Token, next.Token)
	wantGone(t, "Leave of the lost grant", b.Leave(t.Context(), lost, driver.Exit{}))
	ok(t, renew(t, b, next))
}

// refusals are states in which a server refuses each call, reads too.
var refusals = map[string]func(t *testing.T, s *testserver.Server) (end func()){
	"BUSY": func(t *testing.T, s *testserver.Server) func() {
		script := make(chan error, 1)
		go func() { script <- steps.ErrOf(s.Ask("EVAL", "while true do end", "0")) }()
		return func() {
			ask(t, s, "SCRIPT", "KILL")
			if err := <-script; err == nil {
				t.Error("the script ended by itself; this test shows nothing")
			}
		}
	},
	"MISCONF": func(t *testing.T, s *testserver.Server) func() {
		// A folder in the place of the file: it cannot be replaced, as on a full disk it
		// cannot be written.
		must(t, os.Mkdir(filepath.Join(s.Dir(), "dump.rdb"), 0o700))
		ask(t, s, "CONFIG", "SET", "save", "3600 1000000") // refuses to write without saving only
		ask(t, s, "BGSAVE")
		return func() {
			must(t, os.Remove(filepath.Join(s.Dir(), "dump.rdb")))
			ask(t, s, "SAVE")
		}
	},
	"READONLY": func(t *testing.T, s *testserver.Server) func() {
		master := newServer(t)
		host, port, _ := net.SplitHostPort(master.Addr())
		must(t, master.Pause()) // a replica keeps its data until it has heard from its master
		ask(t, s, "REPLICAOF", host, port)
		return func() {
			ask(t, s, "REPLICAOF", "NO", "ONE")
			must(t, master.Continue())
		}
	},
}

// What a server knows that refuses may be over. A refusal says nothing of the claim, and nothing against asking
// again: what is held goes on until it is over.
func TestServerThatRefusesEachCallHeals(t *testing.T) {
	t.Parallel()
	for word, begin := range refusals {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, testserver.Config("lua-time-limit 20"))
			b := patient(t, s.Addr(), nil)
			held, waits := hold(t, b, mutex("key")), wait_(t, b, mutex("key"))
			end := begin(t, s)
			eventually(t, "the server refuses", func() bool {
				err := renew(t, b, held)
				return err != nil && strings.Contains(err.Error(), word)
			})
			for _, k := range []driver.Ticket{held, waits, {Claim: mutex("key"), Token: 7}} { // one that it does not know
				for name, call := range callsOf(b, k) {
					err := call(t.Context())
					if !errors.Is(err, driver.ErrRefused) || driver.Gone(err) || permanent(err) || !strings.Contains(err.Error(), word) {
						t.Errorf("%s answered %v; want that the server has done nothing, for %s", name, err, word)
					}
				}
			}
			for _, got := range together(t, b, enterAll(b, mutex("new"), mutex("newer"))...) {
				if !strings.Contains(got, word) {
					t.Errorf("Enter of many answered %s", got)
				}
			}
			end()
			inLine(t, "as it was before", b, "key", 2)
			ok(t, renew(t, b, held))
			leave(t, b, held)
			granted(t, b, waits)
			leave(t, b, waits)
		})
	}
}
