package redislock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
)

// Eviction takes locks away in pieces. Holders are told by their deadline, no token comes
// twice, a lock that is gone as a whole can be had again, and errors name the cause.
func TestEvictingServerTellsWhoLosesALock(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	rdb := dial(t, s)
	const ttl = 2 * time.Second
	g := &group{t: t, single: s}
	a, b := client(t, g, ttl, nil), client(t, g, ttl, nil)

	const locks = 120
	leases := make([]*fencelock.Lease, locks)
	var waiters sync.WaitGroup
	for i := range leases {
		key := fmt.Sprint("key ", i)
		var err error
		if leases[i], err = a.Lock(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if i%4 != 0 {
			continue
		}
		waiters.Go(func() { // their lines are kept in three keys
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			next, err := b.Lock(ctx, key)
			if err != nil {
				if !strings.Contains(err.Error(), "noeviction") {
					t.Errorf("who waited for %q was told %v", key, err)
				}
				return
			}
			rises(t, leases[i].Token(), next.Token())
			if err := next.Release(ctx); err != nil && !errors.Is(err, fencelock.ErrLost) && !strings.Contains(err.Error(), "noeviction") {
				t.Errorf("Release by who waited for %q: %v", key, err)
			}
		})
	}
	eventually(t, "the waiters are in line", func() bool {
		l, err := b.Line(t.Context(), "key 116")
		return err == nil && len(l.Claims()) == 2
	})

	for _, set := range []string{"CONFIG SET maxmemory-policy allkeys-random", "CONFIG SET maxmemory 3mb"} {
		ask(t, s, strings.Fields(set)...)
	}
	big := strings.Repeat("x", 1000)
	gone := func() map[int]bool {
		missing := make(map[int]bool)
		for i := range leases {
			exists, err := rdb.Exists(t.Context(), recordOf(fmt.Sprint("key ", i))).Result()
			must(t, err)
			if exists == 0 {
				missing[i] = true
			}
		}
		return missing
	}
	filler := 0
	eventually(t, "some locks are evicted", func() bool {
		pipe := rdb.Pipeline()
		for range 500 {
			filler++
			pipe.Set(t.Context(), fmt.Sprint("filler ", filler), big, 0)
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatalf("filling up: %v", err)
		}
		return len(gone()) >= locks/4
	})
	evicted := time.Now()
	ask(t, s, "CONFIG", "SET", "maxmemory", "0")
	missing := gone()
	// A lock whose record is gone, and that nobody has taken since, is a loss by the next
	// renewal: a renewal never makes it anew.
	for i := range missing {
		if i%4 == 0 {
			continue // its waiter may have it by now
		}
		select {
		case <-leases[i].Context().Done():
		case <-time.After(time.Until(evicted.Add(ttl))):
			t.Errorf("the holder of key %d was not told within its lease that it was evicted", i)
		}
		if err := leases[i].Err(); !errors.Is(err, fencelock.ErrLost) {
			t.Errorf("the holder of key %d, which was evicted, was told %v", i, err)
		}
	}
	kept := 0
	for i, lease := range leases {
		if !missing[i] && i%4 != 0 && lease.Err() == nil {
			kept++
			if err := lease.Renew(t.Context()); err != nil {
				t.Errorf("key %d was not evicted, and its renewal answered %v", i, err)
			}
		}
		if err := lease.Release(t.Context()); err != nil && !errors.Is(err, fencelock.ErrLost) && !strings.Contains(err.Error(), "noeviction") {
			t.Errorf("Release of key %d: %v", i, err)
		}
	}
	waiters.Wait()
	// What was lost whole can be had again at once. A line that lost a part refuses until
	// its keys have expired, a minute after its leases, and says why.
	damaged := 0
	for i, lease := range leases {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		again, err := b.Lock(ctx, lease.Key())
		cancel()
		if err != nil {
			if damaged++; i%4 != 0 || !strings.Contains(err.Error(), "noeviction") {
				t.Errorf("key %d cannot be had again: %v", i, err)
			}
			continue
		}
		rises(t, lease.Token(), again.Token())
		if err := again.Release(t.Context()); err != nil {
			t.Errorf("Release of key %d: %v", i, err)
		}
	}
	t.Logf("%d records of %d were evicted; %d single locks were kept; %d lines lost a part", len(missing), locks, kept, damaged)
	if kept == 0 {
		t.Error("no lock was kept; this test shows half of what it should")
	}
}

// recordOf is the name of a lock's record under the default prefix.
func recordOf(key string) string { return New(nil, nil).recordName(key) }

// FLUSHALL in a loop beside holders and waiters: tokens rise, no call fails or hangs, losers are
// told, and nothing that was flushed comes back.
func TestFlushAllInALoopUnderLoad(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	g := &group{t: t, single: s}
	const ttl = time.Second
	clients := []*fencelock.Client{client(t, g, ttl, nil), client(t, g, ttl, nil)}
	var (
		mu     sync.Mutex
		last   = make(map[string]fence.Token) // the largest token of a lock that was returned
		grants int
		lost   int
	)
	done := make(chan struct{})
	var workers sync.WaitGroup
	for i := range 8 {
		c, key := clients[i%2], fmt.Sprint("key ", i%3)
		workers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				mu.Lock()
				before := last[key]
				mu.Unlock()
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				lease, err := c.Lock(ctx, key)
				if err != nil {
					t.Errorf("Lock: %v", err)
					cancel()
					return
				}
				mu.Lock()
				grants++
				if lease.Token() <= before {
					t.Errorf("%q: token %d was granted after %d", key, lease.Token(), before)
				}
				last[key] = max(last[key], lease.Token())
				mu.Unlock()
				if n%4 == 0 {
					// Longer than a renewal takes: who was flushed away hears of it.
					select {
					case <-lease.Context().Done():
					case <-time.After(ttl / 2):
					}
				}
				switch err := lease.Release(ctx); {
				case errors.Is(err, fencelock.ErrLost):
					mu.Lock()
					lost++
					mu.Unlock()
				case err != nil:
					t.Errorf("Release: %v", err)
				}
				cancel()
			}
		})
	}
	flushes := 0
	tick := time.NewTicker(15 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); flushes++ {
		ask(t, s, "FLUSHALL")
		if flushes%5 == 0 {
			ask(t, s, "SCRIPT", "FLUSH")
		}
		<-tick.C
	}
	close(done)
	workers.Wait()
	t.Logf("%d grants and %d losses beside %d FLUSHALLs", grants, lost, flushes)
	if lost == 0 || grants < 50 {
		t.Errorf("%d grants and %d losses; this test shows nothing", grants, lost)
	}
	ask(t, s, "FLUSHALL")
	for _, c := range clients { // nothing comes after that
		ok(t, c.Close())
	}
	if names, err := s.Ask("KEYS", "*"); err != nil || names != "" {
		t.Errorf("%q came back after the last FLUSHALL, %v", names, err)
	}
}

// A server that is busy with somebody's script answers nothing else but that. It is
// waited for: a holder goes on, and a waiter is served when it is over.
func TestServerBusyWithAScriptIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newServer(t, testserver.Config("lua-time-limit 20"))
	raw := connect(t, s, nil)
	g := &group{t: t, single: s}
	const ttl = 3 * time.Second
	failed := make(chan struct{})
	told := sync.OnceFunc(func() { close(failed) })
	a := testclient.New(t, g.connect(nil), &fencelock.Options{
		TTL: ttl, HandOff: 1, OnEvent: testclient.On(fencelock.EventAtRisk, func(fencelock.Event) { told() }),
	})
	t.Cleanup(func() { a.Close() })
	b := client(t, g, ttl, nil)
	lease := lock(t, a, "key")
	ticket := hold(t, raw, mutex("other"))
	script := make(chan error, 1)
	go func() {
		_, err := s.Ask("EVAL", "while true do end", "0")
		script <- err
	}()
	eventually(t, "the server is busy", func() bool {
		err := renewOne(raw, ticket)
		if err != nil && (driver.Gone(err) || permanent(err) || !strings.Contains(err.Error(), "BUSY")) {
			t.Fatalf("a renewal at a busy server answered %v; want that it is busy", err)
		}
		return err != nil
	})
	if _, err := raw.Enter(t.Context(), mutex("third")); err == nil || permanent(err) {
		t.Errorf("Enter at a busy server answered %v", err)
	}
	if err := raw.Leave(t.Context(), ticket, driver.Exit{}); err == nil || driver.Gone(err) || permanent(err) {
		t.Errorf("Leave at a busy server answered %v", err)
	}
	next := make(chan *fencelock.Lease, 1)
	go func() {
		lease, err := b.Lock(t.Context(), "key")
		if err != nil {
			t.Errorf("who came while the server was busy was told %v", err)
		}
		next <- lease
	}()
	<-failed // a renewal
	ok(t, lease.Err())
	before := lease.Deadline()
	ask(t, s, "SCRIPT", "KILL")
	if err := <-script; err == nil {
		t.Error("the script ended by itself; this test shows nothing")
	}
	select {
	case <-lease.Context().Done(): // Renew says why
	case <-time.After(time.Until(before)): // past the lease that it had before
	}
	ok(t, lease.Renew(t.Context()))
	ok(t, lease.Release(t.Context()))
	if l := <-next; l != nil {
		rises(t, lease.Token(), l.Token())
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
				if err := renewOne(b, k); err != nil {
					t.Errorf("claim %d, which was saved, answered %v", i, err)
				}
			}
			wantGone(t, "the claim that was lost", renewOne(b, second))
			again := wait_(t, b, mutex("key"))
			leave(t, b, held)
			granted(t, b, first)
			leave(t, b, first)
			granted(t, b, again)
			leave(t, b, again)
			leave(t, b, other)
			if k := hold(t, b, mutex("key")); k.Token <= max(held.Token, second.Token) {
				t.Errorf("token %d was granted, and %d before the cut", k.Token, max(held.Token, second.Token))
			}
		})
	}
	// A grant is lost, and the lock with it: its holder is told, and its token stays
	// behind the next one.
	t.Run("grant", func(t *testing.T) {
		t.Parallel()
		s := newServer(t, testserver.Persist(true))
		b := connect(t, s, nil)
		hold(t, b, mutex("other"))
		lost := hold(t, b, mutex("key"))
		appendOnlyFileOf(t, s).cut(t, s, b, 1)
		if err := renewOne(b, lost); !driver.Gone(err) {
			t.Errorf("a grant that the server has forgotten was renewed with the answer %v", err)
		}
		next := hold(t, b, mutex("key"))
		rises(t, lost.Token, next.Token)
		wantGone(t, "Leave of the lost grant", b.Leave(t.Context(), lost, driver.Exit{}))
		ok(t, renewOne(b, next))
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
		err := renewOne(b, held)
		if err != nil && !refused(err) {
			t.Fatalf("Renew answered %v", err)
		}
		return err != nil
	})
	_, entered := b.Enter(t.Context(), mutex("key"))
	for name, err := range map[string]error{
		"Enter": entered, "Renew": renewOne(b, waits), "Leave": b.Leave(t.Context(), held, driver.Exit{}),
		"Break": b.Break(t.Context(), "key", held.Token, "reason", 0),
	} {
		if !refused(err) || driver.Gone(err) || permanent(err) {
			t.Errorf("%s answered %v; want that the server cannot write", name, err)
		}
	}
	must(t, os.Remove(filepath.Join(s.Dir(), "dump.rdb")))
	ask(t, s, "SAVE")
	if l := line(t, b, "key"); len(l.Claims) != 2 {
		t.Errorf("the line is %+v; want what it was before", l)
	}
	ok(t, renewOne(b, held))
	leave(t, b, held)
	granted(t, b, waits)
	leave(t, b, waits)
}
