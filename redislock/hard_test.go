package redislock

import (
	"errors"
	"fmt"
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

// Eviction takes locks away in pieces. Who has lost a lock is told by the next renewal, which makes nothing anew; who
// has not goes on; no token comes twice; and each lock can be had again.
func TestEvictingServerTellsWhoLosesALock(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	rdb, b := dial(t, s), connect(t, s, nil)
	const locks = 120
	var held, waiters []driver.Ticket
	for i := range locks {
		held = append(held, hold(t, b, mutex(fmt.Sprint("key ", i))))
		if i%4 == 0 { // its line is kept in three keys
			waiters = append(waiters, wait_(t, b, mutex(held[i].Key)))
		}
	}
	lost := func() (n int) {
		for _, k := range held {
			if rdb.Exists(t.Context(), b.hashName(k.Key)).Val() == 0 {
				n++
			}
		}
		return n
	}
	ask(t, s, "CONFIG", "SET", "maxmemory-policy", "allkeys-random", "maxmemory", "3mb")
	big, filler := strings.Repeat("x", 1000), 0
	eventually(t, "some locks are evicted", func() bool {
		pipe := rdb.Pipeline()
		for range 500 {
			filler++
			pipe.Set(t.Context(), fmt.Sprint("filler ", filler), big, 0)
		}
		must(t, errOf(pipe.Exec(t.Context())))
		return lost() >= locks/4
	})
	ask(t, s, "CONFIG", "SET", "maxmemory", "0")
	missing := lost()
	gone := 0
	for _, err := range b.Renew(t.Context(), held) {
		if driver.Gone(err) {
			gone++
		} else {
			ok(t, err)
		}
	}
	if gone != missing || lost() != missing || gone == locks {
		t.Errorf("%d locks of %d were evicted, %d holders were told so, and %d locks are missing then", missing, locks, gone, lost())
	}
	for _, k := range append(held, waiters...) {
		if err := b.Leave(t.Context(), k, driver.Exit{}); !driver.Gone(err) {
			ok(t, err)
		}
	}
	for _, k := range held {
		again, next := hold(t, b, mutex(k.Key)), wait_(t, b, mutex(k.Key))
		steps.Rises(t, k.Token, again.Token)
		leave(t, b, again)
		granted(t, b, next)
	}
}

// FLUSHALL and SCRIPT FLUSH in a loop beside holders and waiters: no call fails or hangs, losers are told,
// and nothing that was flushed comes back.
func TestFlushAllInALoopUnderLoad(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	g := &group{t: t, single: s}
	l := startTraffic(t, g, 5*time.Second, []string{"a", "b", "c"}, nil)
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
	l.report(5 * time.Second)
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

// A server that is busy with somebody's script answers nothing else but that. It is
// waited for: a holder goes on, and a waiter is served when it is over.
func TestServerBusyWithAScriptIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newServer(t, testserver.Config("lua-time-limit 20"))
	raw, g := connect(t, s, nil), &group{t: t, single: s}
	a, b := client(t, g, 30*time.Second, nil), client(t, g, 30*time.Second, nil)
	lease, ticket := lock(t, a, "key"), hold(t, raw, mutex("other"))
	script := make(chan error, 1)
	go func() { script <- errOf(s.Ask("EVAL", "while true do end", "0")) }()
	busy := func(err error) bool { return err != nil && strings.Contains(err.Error(), "BUSY") }
	eventually(t, "the server is busy", func() bool { return busy(renew(t, raw, ticket)) })
	for name, call := range callsOf(raw, ticket) {
		if err := call(t.Context()); !busy(err) || driver.Gone(err) || permanent(err) {
			t.Errorf("%s at a busy server answered %v", name, err)
		}
	}
	next := make(chan *fencelock.Lease, 1)
	go func() {
		lease, err := b.Lock(t.Context(), "key")
		ok(t, err)
		next <- lease
	}()
	ask(t, s, "SCRIPT", "KILL")
	if err := <-script; err == nil {
		t.Error("the script ended by itself; this test shows nothing")
	}
	ok(t, lease.Renew(t.Context()))
	ok(t, lease.Release(t.Context()))
	if l := <-next; l != nil {
		steps.Rises(t, lease.Token(), l.Token())
		ok(t, l.Release(t.Context()))
	}
	leave(t, raw, ticket)
}

// appendOnlyFile is where a server writes what is done.
type appendOnlyFile string

func appendOnlyFileOf(t *testing.T, s *testserver.Server) appendOnlyFile {
	t.Helper()
	if isSince(t, s, 7, 0) {
		return appendOnlyFile(filepath.Join(s.Dir(), "appendonlydir", "appendonly.aof.1.incr.aof"))
	}
	return appendOnlyFile(filepath.Join(s.Dir(), "appendonly.aof"))
}

func (f appendOnlyFile) size(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(string(f))
	must(t, err)
	return info.Size()
}

// cut kills the server, takes so many bytes off the end of its file, and starts it again.
func (f appendOnlyFile) cut(t *testing.T, s *testserver.Server, b *Backend, tail int64) {
	t.Helper()
	must(t, s.Kill())
	must(t, os.Truncate(string(f), f.size(t)-tail))
	must(t, s.Restart())
	noticed(t, b)
}

// A power cut takes the tail of the append-only file. The server comes back with whole steps. What
// it has forgotten is a loss at the next renewal, the rest goes on, and tokens rise.
func TestTailOfTheAppendOnlyFileIsLost(t *testing.T) {
	t.Parallel()
	// What a step writes is in the file as a transaction of several commands. It is cut
	// behind the step before, in its middle, and before its last byte.
	for name, part := range map[string]func(size int64) int64{
		"all":  func(size int64) int64 { return size },
		"half": func(size int64) int64 { return size / 2 },
		"byte": func(int64) int64 { return 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, testserver.Persist(true))
			b := connect(t, s, nil)
			file := appendOnlyFileOf(t, s)
			held := hold(t, b, mutex("key"))
			first := wait_(t, b, mutex("key"))
			other := hold(t, b, mutex("other"))
			before := file.size(t)
			// The step that is lost: a third claim of one line, which writes three keys.
			second := wait_(t, b, mutex("key"))
			file.cut(t, s, b, part(file.size(t)-before))
			if l := line(t, b, "key"); len(l.Claims) != 2 || !l.Claims[0].Granted || l.Claims[1].Granted {
				t.Errorf("the line is %+v; want who held and who waited first", l)
			}
			for i, k := range []driver.Ticket{held, first, other} {
				steps.Well(t, fmt.Sprintf("claim %d, which was saved", i), renew(t, b, k))
			}
			wantGone(t, "the claim that was lost", renew(t, b, second))
			again := wait_(t, b, mutex("key"))
			leave(t, b, held)
			granted(t, b, first)
			leave(t, b, first)
			granted(t, b, again)
			leave(t, b, again)
			leave(t, b, other)
			steps.Rises(t, max(held.Token, second.Token), hold(t, b, mutex("key")).Token)
		})
	}
	// A grant is lost, and the lock with it: its holder is told, and its token stays
	// behind the next one.
	t.Run("grant", func(t *testing.T) {
		t.Parallel()
		s := newServer(t, testserver.Persist(true))
		b := connect(t, s, nil)
		hold(t, b, mutex("other"))
		b.transport.queueOf(b.rdb).fast.Store(false) // else what is late is sent again, and the cut loses that
		lost := hold(t, b, mutex("key"))
		appendOnlyFileOf(t, s).cut(t, s, b, 1)
		wantGone(t, "Renew of a grant that the server has forgotten", renew(t, b, lost))
		next := hold(t, b, mutex("key"))
		steps.Rises(t, lost.Token, next.Token)
		wantGone(t, "Leave of the lost grant", b.Leave(t.Context(), lost, driver.Exit{}))
		ok(t, renew(t, b, next))
	})
}

// A server that cannot save refuses to write. That is no answer about any lock, and says
// nothing against asking again: what is held goes on until it is over.
func TestServerThatCannotSaveIsUnknownAndHeals(t *testing.T) {
	t.Parallel()
	s, b, _ := served(t)
	held, waits := hold(t, b, mutex("key")), wait_(t, b, mutex("key"))
	// A folder in the place of the file: it cannot be replaced, as on a full disk it
	// cannot be written.
	must(t, os.Mkdir(filepath.Join(s.Dir(), "dump.rdb"), 0o700))
	ask(t, s, "CONFIG", "SET", "save", "3600 1000000") // refuses to write without saving only
	ask(t, s, "BGSAVE")
	refused := func(err error) bool { return err != nil && strings.Contains(err.Error(), "MISCONF") }
	eventually(t, "the server refuses to write", func() bool {
		err := renew(t, b, held)
		if err != nil && !refused(err) {
			t.Fatalf("Renew answered %v", err)
		}
		return err != nil
	})
	_, entered := b.Enter(t.Context(), mutex("key"))
	for name, err := range map[string]error{
		"Enter": entered, "Renew": renew(t, b, waits), "Leave": b.Leave(t.Context(), held, driver.Exit{}),
		"Break": b.Break(t.Context(), "key", held.Token, driver.Break{Reason: "reason"}),
	} {
		if !refused(err) || driver.Gone(err) || permanent(err) {
			t.Errorf("%s answered %v; want that the server cannot write", name, err)
		}
	}
	must(t, os.Remove(filepath.Join(s.Dir(), "dump.rdb")))
	ask(t, s, "SAVE")
	inLine(t, "as it was before", b, "key", 2)
	ok(t, renew(t, b, held))
	leave(t, b, held)
	granted(t, b, waits)
	leave(t, b, waits)
}
