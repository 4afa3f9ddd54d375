package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/health"
	"github.com/fencelock/fencelock/driver/record"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// A FLUSHALL is a loss, not an invitation.
func TestFlushedClaimsAreGoneAndStayGone(t *testing.T) {
	s, b, rdb := served(t)
	alone := hold(t, b, mutex("alone"))
	held := hold(t, b, mutex("contended"))
	waits := wait_(t, b, mutex("contended"))
	ask(t, s, "FLUSHALL")
	for i, err := range b.Renew(t.Context(), []driver.Ticket{alone, held, waits}) {
		wantGone(t, fmt.Sprint("Renew of claim ", i), err)
	}
	if names := rdb.Keys(t.Context(), "*").Val(); len(names) != 0 {
		t.Errorf("Renew made %q", names)
	}
	var heard error
	for heard == nil {
		heard = steps.ErrOf(b.Await(steps.Soon(t), waits))
	}
	wantGone(t, "Await", heard)
	wantGone(t, "Leave", b.Leave(t.Context(), alone, driver.Exit{Mark: "m"}))
	steps.Rises(t, alone.Token, hold(t, b, mutex("alone")).Token)
}

// A server that syncs each write knows every claim after a kill. One that keeps nothing has
// forgotten them: the holder is told by its next renewal, and does not enter again by it.
func TestServerIsKilledAndComesBack(t *testing.T) {
	t.Parallel()
	for name, keeps := range map[string]bool{"keeps": true, "forgets": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, testserver.Persist(keeps))
			a, b := connect(t, s, nil), connect(t, s, nil)
			held, waiter := hold(t, a, mutex("key")), wait_(t, b, mutex("key"))
			must(t, s.Kill())
			steps.Unknown(t, "Enter without a server", steps.ErrOf(b.Enter(t.Context(), mutex("new"))))
			steps.Unknown(t, "Renew without a server", renew(t, a, held))
			steps.Unknown(t, "Leave without a server", b.Leave(t.Context(), waiter, driver.Exit{}))
			must(t, s.Restart())
			for _, b := range []*Backend{a, b} {
				noticed(t, b)
			}
			if !keeps {
				wantGone(t, "Renew of the holder", renew(t, a, held))
				wantGone(t, "Renew of the waiter", renew(t, b, waiter))
				next := hold(t, b, mutex("key"))
				steps.Rises(t, held.Token, next.Token)
				wantGone(t, "Leave of the one before", a.Leave(t.Context(), held, driver.Exit{}))
				leave(t, b, next)
				return
			}
			ok(t, renew(t, a, held))
			if _, err := b.Enter(t.Context(), noWait(mutex("key"))); !errors.As(err, new(*driver.BusyError)) {
				t.Errorf("a try after the restart answered %v", err)
			}
			leave(t, a, held)
			granted(t, b, waiter)
			leave(t, b, waiter)
		})
	}
}

// fill writes until the server takes no more.
func fill(t *testing.T, rdb *redis.Client) {
	t.Helper()
	// The smaller ones fill what the buffers of the larger ones leave.
	for _, size := range []int{4000, 400, 4} {
		value := strings.Repeat("x", size)
		for i := 0; ; i++ {
			err := rdb.Set(t.Context(), fmt.Sprint("filler", size, "-", i), value, 0).Err()
			if err != nil && strings.HasPrefix(err.Error(), "OOM") {
				break
			}
			if err != nil || i > 100_000 {
				t.Fatalf("filling up: %v", err)
			}
		}
	}
}

func TestLeavingAndRenewingWorkWhenMemoryIsShort(t *testing.T) {
	_, b, rdb := served(t)
	ctx := t.Context()
	// Every way to leave, alone and in a line.
	var leavers, waiters, broken []driver.Ticket
	var exits []driver.Exit
	for _, e := range []driver.Exit{{}, {Mark: "m"}, {Linger: time.Second}, {Mark: "m", Linger: time.Second}} {
		for _, tombstone := range []bool{false, true} {
			e.Tombstone = tombstone
			key := fmt.Sprintf("%+v", e)
			leavers, exits = append(leavers, hold(t, b, mutex(key)), hold(t, b, mutex(key+", line"))), append(exits, e, e)
			waiters = append(waiters, wait_(t, b, mutex(key+", line")))
		}
	}
	for _, key := range []string{"broken", "broken line"} {
		broken = append(broken, hold(t, b, mutex(key)))
	}
	wait_(t, b, mutex("broken line"))
	dies := hold(t, b, mutex("dies"))
	behind := wait_(t, b, mutex("dies"))
	must(t, rdb.ConfigSet(ctx, "maxmemory", "1mb").Err())
	fill(t, rdb)

	short := func(call, got string) {
		if !strings.Contains(got, "OOM") {
			t.Errorf("%s answered %s, want that memory is short", call, got)
		}
	}
	for _, key := range []string{"new", "broken"} {
		_, err := b.Enter(ctx, mutex(key))
		if short("Enter", fmt.Sprint(err)); permanent(err) {
			t.Errorf("Enter answered %v, which is permanent", err)
		}
	}
	for _, got := range together(t, b, enterAll(b, mutex("one of many"), mutex("another"), mutex("broken"))...) {
		short("Enter of many", got)
	}
	inLine(t, "a refused Enter leaves nothing", b, "broken", 1)
	wantGone(t, "Leave of a claim that was refused", b.Leave(ctx, driver.Ticket{Claim: mutex("new")}, driver.Exit{Tombstone: true}))
	ok(t, errors.Join(b.Renew(ctx, slices.Concat(leavers, waiters))...))
	for i, k := range leavers {
		steps.Well(t, "Leave of "+k.Key, b.Leave(ctx, k, exits[i]))
	}
	for _, w := range waiters {
		granted(t, b, w) // of a holder that lingers, when that is over
		leave(t, b, w)
	}
	for _, k := range broken {
		ok(t, b.Break(ctx, k.Key, k.Token, driver.Break{Reason: "reason"}))
		if err := renew(t, b, k); err == nil || !strings.Contains(err.Error(), "reason") {
			t.Errorf("Renew of a broken claim answered %v", err)
		}
	}
	// Its lease ends: as long a text, so no memory is needed here either.
	kept := rdb.HGet(ctx, b.hashName("dies"), "c:"+dies.ID).Val()
	must(t, rdb.ConfigSet(ctx, "maxmemory", "0").Err())
	must(t, rdb.HSet(ctx, b.hashName("dies"), "c:"+dies.ID, "1000000000000000"+kept[16:], "soonest", "1000000000000000").Err())
	must(t, rdb.ConfigSet(ctx, "maxmemory", "1mb").Err())
	granted(t, b, behind)
	must(t, rdb.ConfigSet(ctx, "maxmemory", "0").Err())
}

func TestWrongPasswordIsPermanentAndNotPrinted(t *testing.T) {
	s := newServer(t, testserver.Password("the right one"))
	for name, o := range map[string]*redis.Options{
		"wrong password": {Password: "hunter2"},
		"unknown user":   {Username: "hunter2", Password: "hunter2"},
		"no password":    {},
	} {
		o.Addr = s.Addr()
		rdb := redis.NewClient(o)
		b := New(rdb, nil)
		_, err := b.Enter(t.Context(), mutex("key"))
		if !permanent(err) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "right one") {
			t.Errorf("%s: Enter answered %v", name, err)
		}
		for _, err := range b.Lines(t.Context(), "") {
			if !permanent(err) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: Lines answered %v", name, err)
			}
		}
		b.Close()
		rdb.Close()
	}
}

// Everything is done with the rights that New names, and each of them is used: the server counts. What the doctor may
// not read then is a note.
func TestEveryRightThatIsAskedForIsNeeded(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	restrict(t, s)
	b, ctx := closing(t, New(dialLocks(t, s), nil)), t.Context()
	b.subscriber.silence = 20 * time.Millisecond // it asks whether it is there

	e, err := b.Examine(ctx, 30*time.Second)
	must(t, err)
	for _, f := range e.Findings {
		if f.Code != "redis-unreadable" || f.Severity != health.Note {
			t.Errorf("the doctor finds %+v", f)
		}
	}
	steps.Same(t, "notes, of INFO and CONFIG", len(e.Findings), 2)
	steps.Same(t, "keys that the doctor leaves", ask(t, s, "DBSIZE"), "0")

	ask(t, s, "CONFIG", "RESETSTAT")
	k, first, second := hold(t, b, mutex("key")), wait_(t, b, mutex("key")), wait_(t, b, mutex("key"))
	must(t, steps.ErrOf(b.read(ctx, first)))
	must(t, b.Leave(ctx, k, driver.Exit{Mark: "m"}))
	granted(t, b, first)
	must(t, b.Break(ctx, "key", second.Token, driver.Break{Reason: "reason"}))
	must(t, renew(t, b, first))
	for range 2 { // a tombstone that another prolongs
		_ = b.Leave(ctx, first, driver.Exit{Tombstone: true})
	}
	for _, err := range b.Lines(ctx, "") {
		must(t, err)
	}
	short := mutex("short")
	short.TTL = minTTL
	enter(t, b, short)
	granted(t, b, enter(t, b, mutex("short"))) // when the first has expired
	for old := false; !old; old = calls(t, s, "xdel") > 0 {
		must(t, b.Record(ctx, []record.Entry{{Key: "history", Token: 1, Owner: "o"}}, record.Bounds{Keep: 1e6, For: minTTL}))
	}
	must(t, steps.ErrOf(b.History(ctx, "history", 10)))
	for _, right := range strings.Fields(rights) {
		eventually(t, right+" is used", func() bool { return calls(t, s, right[1:]) > 0 })
	}
}

// Answers that say nothing of the command are carried until the deadline; those that
// will not change are not.
func TestErrorsAreToldApart(t *testing.T) {
	b := &Backend{transport: &transport{cluster: &redis.ClusterClient{}}}
	for text, want := range map[string]bool{
		"READONLY You can't write against a read only replica.":                   false,
		"LOADING Redis is loading the dataset in memory":                          false,
		"CLUSTERDOWN The cluster is down":                                         false,
		"TRYAGAIN Multiple keys request during rehashing of slot":                 false,
		"MASTERDOWN Link with MASTER is down":                                     false,
		"OOM command not allowed when used memory > 'maxmemory'.":                 false,
		"MOVED 1 127.0.0.1:1":                                                     false,
		"EOF":                                                                     false,
		"NOAUTH Authentication required.":                                         true,
		"NOPERM this user has no permissions to run the 'evalsha' command":        true,
		"ERR unknown command `evalsha`, with args beginning with: ":               true,
		"ERR FENCELOCK DAMAGED fencelock:{x} script: 1234, on @user_script:1.":    true,
		"ERR Error running script (call to f_1): FENCELOCK DAMAGED fencelock:{x}": true,
		"ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica.": false,
		"ERR Error running script (call to f_1): @user_script:1: The user executing the script can't run this command or subcommand":      true,
	} {
		err := b.failed(context.Background(), "entering the line of", "key", scriptError(text))
		if permanent(err) != want || !strings.Contains(err.Error(), `"key"`) {
			t.Errorf("%q became %v, permanent %v", text, err, permanent(err))
		}
		if errors.Is(err, driver.ErrRefused) == (text == "EOF") {
			t.Errorf("%q became %#v; that nothing happened is known of all but EOF", text, err)
		}
	}
}

// A call returns when its context ends, though the server hangs. A connection gives up at the deadline of a call, and
// may do so a moment before its context does. That says nothing about the server, and the step is not sent again.
func TestCallThatRunsOutOfTimeSaysSo(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	o := dial(t, s).Options()
	for name, bound := range map[string]bool{"client bound by contexts": true, "client not bound by contexts": false} {
		t.Run(name, func(t *testing.T) {
			own := *o
			own.ContextTimeoutEnabled, own.MaxRetries, own.ReadTimeout = bound, -1, time.Hour
			rdb := redis.NewClient(&own)
			t.Cleanup(func() { rdb.Close() })
			b := closing(t, New(rdb, nil))
			held := hold(t, b, mutex(name))
			must(t, s.Pause())
			calls := callsOf(b, held)
			for range 100 {
				for call, f := range calls {
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					start := time.Now()
					steps.Is(t, call, f(ctx), context.DeadlineExceeded)
					tookAtMost(t, start, time.Minute)
					cancel()
				}
			}
			must(t, s.Continue())
		})
	}
}
