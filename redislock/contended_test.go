package redislock

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/redis/go-redis/v9"
)

// The number of commands that a hand-over runs does not depend on how many wait.
func TestHandOverRunsAsManyCommandsInALongLineAsInAShortOne(t *testing.T) {
	s := newServer(t)
	b, rdb := patient(t, s.Addr(), nil), dial(t, s)
	b.subscriber.silence = time.Hour
	for _, sc := range []*script{enterScript, leaveScript, renewScript, awaitScript} {
		rdb.ScriptLoad(t.Context(), sc.text.(string))
	}
	for name, claim := range map[string]func(key string) driver.Claim{
		"mutex":     mutex,
		"semaphore": func(key string) driver.Claim { return slots(key, 2, 3) },
	} {
		t.Run(name, func(t *testing.T) { sameCommands(t, b, rdb, claim) })
	}
}

func sameCommands(t *testing.T, b *Backend, rdb *redis.Client, claim func(key string) driver.Claim) {
	var counts [2]string
	for i, n := range []int{10, 1000} {
		key := fmt.Sprint(t.Name(), " ", n)
		k := hold(t, b, claim(key))
		var waiters []driver.Ticket
		for range n {
			waiters = append(waiters, wait_(t, b, claim(key)))
		}
		subscribed(t, b) // which is a command, too
		must(t, rdb.ConfigResetStat(t.Context()).Err())
		leave(t, b, k)
		waiters = append(waiters, enter(t, b, claim(key)))
		must(t, steps.ErrOf(b.read(t.Context(), waiters[n/2])))
		must(t, renew(t, b, waiters[n/2]))
		var calls []string
		for _, m := range regexp.MustCompile(`cmdstat_(\S+?):calls=(\d+)`).FindAllStringSubmatch(rdb.Info(t.Context(), "commandstats").Val(), -1) {
			if !strings.HasPrefix(m[1], "config") && m[1] != "hello" { // a new connection begins with that
				calls = append(calls, m[1]+" "+m[2])
			}
		}
		slices.Sort(calls)
		counts[i] = strings.Join(calls, ", ")
		for _, w := range waiters {
			leave(t, b, w)
		}
		if n := len(b.waiters.byID); n != 0 {
			t.Errorf("%d claims that have left are waited for", n)
		}
	}
	if counts[0] != counts[1] {
		t.Errorf("with 10 waiters the server ran %s\nwith 1000 waiters %s", counts[0], counts[1])
	}
}

// The keys of a line live for a day or two longer than the longest of its leases and tombstones, and no longer.
func TestKeysOfALineLiveAsLongAsItsClaims(t *testing.T) {
	_, b, rdb := served(t)
	const day = 24 * time.Hour
	lasts := func(what string, want time.Duration) {
		for _, part := range []string{"", "v", "w"} {
			left := rdb.PTTL(t.Context(), b.hashName("key")+part).Val()
			if left < want+day-time.Minute || left > want+2*day+time.Hour {
				t.Errorf("%q ends in %v, and %s in %v; want it to last for one or two days more", part, left, what, want)
			}
		}
	}
	held, waits := hold(t, b, mutex("key")), wait_(t, b, mutex("key"))
	lasts("a waiter", waits.TTL)
	last := wait_(t, b, steps.TTL(mutex("key"), 4*day))
	lasts("a second waiter", last.TTL)
	held.TTL, waits.TTL = 8*day, 12*day
	must(t, renew(t, b, held))
	lasts("the holder", held.TTL)
	must(t, renew(t, b, waits))
	lasts("a waiter that was renewed", waits.TTL)
	held.TTL = 16 * day
	must(t, b.Leave(t.Context(), held, driver.Exit{Tombstone: true}))
	lasts("a tombstone", held.TTL)
	if left := rdb.PTTL(t.Context(), b.hashName("key")+"x:"+held.ID).Val(); left < held.TTL-time.Minute || left > held.TTL {
		t.Errorf("a tombstone for %v ends in %v", held.TTL, left)
	}
	last.TTL = maxTTL
	must(t, renew(t, b, last))
	lasts("the longest lease", last.TTL)
	leave(t, b, waits)
	leave(t, b, last)
}

// Nothing of a closed Backend is left running, and an idle one runs nothing.
func TestGoroutinesEnd(t *testing.T) {
	s := newServer(t)
	rdb := dial(t, s)
	idle := New(rdb, nil)
	defer idle.Close()
	if n := ours(); n != 0 {
		t.Errorf("an idle Backend runs %d goroutines", n)
	}
	b, holder := New(rdb, nil), New(rdb, nil)
	held := hold(t, holder, mutex("key"))
	leave(t, holder, hold(t, holder, mutex("other")))
	eventually(t, "a Backend whose claims do not wait runs no goroutine", func() bool { return ours() == 0 })
	b.Alarm(func(string, driver.GoneError) {})
	k := wait_(t, b, mutex("key"))
	subscribed(t, b)
	var awaits sync.WaitGroup
	awaits.Go(func() { _, _ = b.Await(context.Background(), k) })
	ok(t, b.Close())
	awaits.Wait()
	leave(t, holder, held)
	ok(t, holder.Close())
	eventually(t, "all goroutines have ended", func() bool { return ours() == 0 })
	ok(t, rdb.Ping(t.Context()).Err())
	eventually(t, "no subscription is left", func() bool {
		n, err := s.Ask("PUBSUB", "CHANNELS")
		return err == nil && n == ""
	})
}

// ours counts the goroutines that this package has started.
func ours() (n int) {
	buf := make([]byte, 1<<20)
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "created by github.com/fencelock/fencelock/redislock.(*") {
			n++
		}
	}
	return n
}
