package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/record"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/redislock/internal/transport"
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
		if !driver.Gone(err) {
			t.Errorf("Renew of claim %d answered %v", i, err)
		}
	}
	if names := rdb.Keys(t.Context(), "*").Val(); len(names) != 0 {
		t.Errorf("Renew made %q", names)
	}
	start := time.Now()
	for {
		_, err := b.Await(t.Context(), waits)
		if driver.Gone(err) {
			break
		}
		if err != nil || time.Since(start) > 3*fallback {
			t.Fatalf("after %v the waiter has heard %v", time.Since(start), err)
		}
	}
	wantGone(t, "Leave", b.Leave(t.Context(), alone, driver.Exit{Mark: "m"}))
	if k := hold(t, b, mutex("alone")); k.Token <= alone.Token {
		t.Errorf("token %d follows %d", k.Token, alone.Token)
	}
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
			_, err := b.Enter(t.Context(), mutex("new"))
			for name, err := range map[string]error{
				"Enter": err, "Renew": renewOne(a, held), "Leave": b.Leave(t.Context(), waiter, driver.Exit{}),
			} {
				if err == nil || driver.Gone(err) || permanent(err) {
					t.Errorf("%s without a server answered %v, want an error that says nothing of the claim", name, err)
				}
			}
			must(t, s.Restart())
			for _, b := range []*Backend{a, b} {
				noticed(t, b)
			}
			if !keeps {
				for _, err := range []error{renewOne(a, held), renewOne(b, waiter)} {
					if !driver.Gone(err) {
						t.Errorf("Renew at a server that has forgotten answered %v", err)
					}
				}
				next := hold(t, b, mutex("key"))
				rises(t, held.Token, next.Token)
				wantGone(t, "Leave of the one before", a.Leave(t.Context(), held, driver.Exit{}))
				leave(t, b, next)
				return
			}
			ok(t, renewOne(a, held))
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
	s := newServer(t)
	rdb := dial(t, s)
	b := connect(t, s, nil)
	ctx := t.Context()
	used := func() string { return rdb.ConfigSet(ctx, "maxmemory", "1mb").Val() }

	type held struct {
		k    driver.Ticket
		exit driver.Exit
	}
	var leavers []held
	short := func(key string) driver.Claim {
		c := mutex(key)
		c.TTL = 10 * time.Second
		return c
	}
	// Every way to leave, alone and in a line.
	exits := []driver.Exit{{}, {Mark: "m"}, {Linger: time.Second}, {Mark: "m", Linger: time.Second}}
	var waiters []driver.Ticket
	for i, e := range exits {
		for _, tombstone := range []bool{false, true} {
			k := hold(t, b, short(fmt.Sprint("alone ", i, tombstone)))
			line := hold(t, b, short(fmt.Sprint("line ", i, tombstone)))
			w := wait_(t, b, short(line.Key))
			if e.Linger == 0 {
				waiters = append(waiters, w)
			}
			e.Tombstone = tombstone
			leavers = append(leavers, held{k, e}, held{line, e})
		}
	}
	broken, brokenLine := hold(t, b, mutex("broken")), hold(t, b, mutex("broken line"))
	wait_(t, b, mutex("broken line"))
	expiring := mutex("expiring")
	expiring.TTL = 2 * time.Second
	hold(t, b, expiring)
	behind := wait_(t, b, mutex("expiring"))

	two := []driver.Ticket{hold(t, b, mutex("of many")), hold(t, b, mutex("of many more"))}
	wait_(t, b, mutex("of many more"))
	used()
	fill(t, rdb)
	if _, err := b.Enter(ctx, mutex("new")); err == nil || permanent(err) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("Enter answered %v, want that memory is short", err)
	}
	if _, err := b.Enter(ctx, mutex("broken")); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("Enter behind a holder answered %v, want that memory is short", err)
	}
	for _, got := range together(t, b, enterAll(b, mutex("one of many"), mutex("another"), mutex("broken"))...) {
		if !strings.Contains(got, "OOM") {
			t.Errorf("Enter of many answered %s, want that memory is short", got)
		}
	}
	if l := line(t, b, "broken"); len(l.Claims) != 1 {
		t.Errorf("a refused Enter left %+v", l)
	}
	var many []*transport.Command
	for _, k := range two {
		many = append(many, b.command(leaveScript, k.Key, prefixed(k.ID), b.callName()))
	}
	for _, got := range together(t, b, many...) {
		if !strings.HasPrefix(got, "+ ") {
			t.Errorf("Leave of many answered %s", got)
		}
	}
	for range 3 {
		var ts []driver.Ticket
		for _, h := range leavers {
			r := h.k
			r.TTL = time.Minute
			ts = append(ts, r)
		}
		for i, err := range b.Renew(ctx, append(ts, waiters...)) {
			if err != nil {
				t.Errorf("Renew of claim %d: %v", i, err)
			}
		}
	}
	for _, h := range leavers {
		if err := b.Leave(ctx, h.k, h.exit); err != nil {
			t.Errorf("Leave %q with %+v and token %d: %v", h.k.Key, h.exit, h.k.Token, err)
		}
	}
	for _, w := range waiters {
		granted(t, b, w)
		leave(t, b, w)
	}
	for _, k := range []driver.Ticket{broken, brokenLine} {
		if err := b.Break(ctx, k.Key, k.Token, "reason", 0); err != nil {
			t.Errorf("Break on %q: %v", k.Key, err)
		}
		if err := renewOne(b, k); err == nil || !strings.Contains(err.Error(), "reason") {
			t.Errorf("Renew of a broken claim answered %v", err)
		}
	}
	granted(t, b, behind)
	rdb.ConfigSet(ctx, "maxmemory", "0")
}

func TestReadOnlyServerIsUnknownAndNotPermanent(t *testing.T) {
	master, s := newServer(t), newServer(t)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
	defer rdb.Close()
	b := closing(t, New(rdb, nil))
	k := hold(t, b, mutex("key"))
	w := wait_(t, b, mutex("key"))
	host, port, _ := net.SplitHostPort(master.Addr())
	// Its data is kept only as long as it has not heard from its master.
	must(t, master.Pause())
	defer master.Continue()
	ask(t, s, "REPLICAOF", host, port)
	unknown := func(name string, err error) {
		if err == nil || permanent(err) || driver.Gone(err) || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("%s answered %v, want that the server is read-only just now", name, err)
		}
	}
	_, err := b.Enter(t.Context(), mutex("new"))
	unknown("Enter", err)
	for _, got := range together(t, b, enterAll(b, mutex("new"), mutex("newer"))...) {
		unknown("Enter of many", errors.New(got))
	}
	unknown("Renew", renewOne(b, k))
	unknown("Leave", b.Leave(t.Context(), k, driver.Exit{}))
	unknown("Break", b.Break(t.Context(), "key", k.Token, "", 0))
	ask(t, s, "REPLICAOF", "NO", "ONE")
	ok(t, renewOne(b, k))
	leave(t, b, k)
	granted(t, b, w)
	leave(t, b, w)
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

func TestMissingRightIsPermanent(t *testing.T) {
	s := newServer(t)
	ask(t, s, aclLine(t, s, "ACL SETUSER locks on >secret ~elsewhere:* &* +@all")...)
	b := closing(t, New(dialLocks(t, s), nil))
	everyCall(t, b, "key", func(name string, err error) {
		if name == "Lines" {
			return
		}
		if !permanent(err) || !strings.Contains(err.Error(), "rights") {
			t.Errorf("%s answered %v", name, err)
		}
	})
}

// Each right that New names is needed: without it something fails.
func TestEveryRightThatIsAskedForIsNeeded(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, right := range append(strings.Fields(rights), "") {
		restrict(t, s)
		if right != "" {
			ask(t, s, "ACL", "SETUSER", "locks", "-"+right[1:])
		}
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "locks", Password: "secret", MaxRetries: -1})
		switch err := everyCommand(rdb); {
		case right == "" && err != nil:
			t.Errorf("with all rights: %v", err)
		case right != "" && err == nil:
			t.Errorf("nothing failed without %s", right)
		}
		rdb.Close()
		ask(t, s, "FLUSHALL")
		ask(t, s, "ACL", "DELUSER", "locks")
	}
}

// everyCommand does what needs each right, and returns the first error.
func everyCommand(rdb *redis.Client) error {
	b := New(rdb, nil)
	defer b.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := everyCommandOfHistory(ctx, b); err != nil {
		return err
	}
	k, err := b.Enter(ctx, mutex("key"))
	if err != nil {
		return err
	}
	var waiters []driver.Ticket
	for range 2 {
		w, err := b.Enter(ctx, mutex("key"))
		if err != nil {
			return err
		}
		waiters = append(waiters, w)
	}
	for b.subscriber.epoch.Load() == 0 {
		if ctx.Err() != nil {
			return errors.New("no subscription")
		}
		if _, err := b.Await(ctx, waiters[0]); err != nil {
			return err
		}
	}
	if _, err := b.Await(ctx, waiters[0]); err != nil {
		return err
	}
	start := time.Now()
	if err := b.Leave(ctx, k, driver.Exit{}); err != nil {
		return err
	}
	if _, err := b.Await(ctx, waiters[0]); err != nil {
		return err
	}
	if time.Since(start) > 400*time.Millisecond {
		return errors.New("no push")
	}
	if err := b.Break(ctx, "key", waiters[1].Token, "reason", 0); err != nil {
		return err
	}
	if err := b.Renew(ctx, waiters[:1])[0]; err != nil {
		return err
	}
	for _, err := range b.Lines(ctx, "") {
		if err != nil {
			return err
		}
	}
	// A claim that expires in a line.
	short := mutex("short")
	short.TTL = minTTL
	if _, err := b.Enter(ctx, short); err != nil {
		return err
	}
	w, err := b.Enter(ctx, mutex("short"))
	if err != nil {
		return err
	}
	for !w.Granted {
		if w, err = b.Await(ctx, w); err != nil {
			return err
		}
	}
	if err := rdb.Ping(ctx).Err(); err != nil {
		return err
	}
	ps := rdb.Subscribe(ctx, b.channel)
	defer ps.Close()
	if _, err := ps.Receive(ctx); err != nil {
		return err
	}
	if err := ps.Unsubscribe(ctx, b.channel); err != nil {
		return err
	}
	if _, err := ps.ReceiveTimeout(ctx, time.Second); err != nil {
		return err
	}
	return nil
}

// everyCommandOfHistory writes for longer than a record stays, and reads.
func everyCommandOfHistory(ctx context.Context, b *Backend) error {
	const stays = 50 * time.Millisecond
	entry := []record.Entry{{Key: "history", Token: 1, Owner: "o"}}
	first := time.Time{} // when the first record was there
	for old := false; !old; {
		old = !first.IsZero() && time.Since(first) > 2*stays // this record finds one that is too old
		if err := b.Record(ctx, entry, record.Bounds{Keep: 10_000, For: stays}); err != nil {
			return err
		}
		if first.IsZero() {
			first = time.Now()
		}
	}
	_, err := b.History(ctx, "history", 10)
	return err
}

// Answers that say nothing of the command are carried until the deadline; those that
// will not change are not.
func TestErrorsAreToldApart(t *testing.T) {
	for text, want := range map[string]bool{
		"READONLY You can't write against a read only replica.":                       false,
		"LOADING Redis is loading the dataset in memory":                              false,
		"MISCONF Redis is configured to save RDB snapshots":                           false,
		"CLUSTERDOWN The cluster is down":                                             false,
		"BUSY Redis is busy running a script.":                                        false,
		"TRYAGAIN Multiple keys request during rehashing of slot":                     false,
		"NOREPLICAS Not enough good replicas to write.":                               false,
		"MASTERDOWN Link with MASTER is down":                                         false,
		"OOM command not allowed when used memory > 'maxmemory'.":                     false,
		"MOVED 1 127.0.0.1:1":                                                         false,
		"EOF":                                                                         false,
		"i/o timeout":                                                                 false,
		"dial tcp 127.0.0.1:1: connect: connection refused":                           false,
		"NOAUTH Authentication required.":                                             true,
		"WRONGPASS invalid username-password pair or user is disabled.":               true,
		"NOPERM this user has no permissions to run the 'evalsha' command":            true,
		"ERR unknown command `evalsha`, with args beginning with: ":                   true,
		"WRONGTYPE Operation against a key holding the wrong kind of value":           true,
		"ERR FENCELOCK DAMAGED fencelock:{x} script: 1234, on @user_script:1.":        true,
		"ERR Error running script (call to f_1): @user_script:1: FENCELOCK VERSION 2": true,
		"ERR Error running script (call to f_1): FENCELOCK DAMAGED fencelock:{x}":     true,
		"ERR Error running script (call to f_1): @user_script:1: WRONGTYPE Operation": true,
		"ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica.": false,
		"ERR Error running script (call to f_1): @user_script:1: The user executing the script can't run this command or subcommand":      true,
	} {
		err := failed(context.Background(), "entering the line of", "key", errors.New(text))
		if permanent(err) != want || !strings.Contains(err.Error(), `"key"`) {
			t.Errorf("%q became %v, permanent %v", text, err, permanent(err))
		}
		silent := strings.Contains("EOF i/o timeout dial tcp 127.0.0.1:1: connect: connection refused", text)
		if errors.Is(err, driver.ErrRefused) == silent {
			t.Errorf("%q became %#v; that nothing happened is known: %v", text, err, !silent)
		}
	}
}

// A connection gives up at the deadline of a call, and may do so a moment before its context
// does. That is no word about the server, and no reason to send the step once more.
func TestCallThatRunsOutOfTimeSaysSo(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	o := dial(t, s).Options()
	for name, bound := range map[string]bool{"client bound by contexts": true, "client not bound by contexts": false} {
		t.Run(name, func(t *testing.T) {
			own := *o
			own.ContextTimeoutEnabled, own.MaxRetries = bound, -1
			rdb := redis.NewClient(&own)
			t.Cleanup(func() { rdb.Close() })
			b := closing(t, New(rdb, nil))
			held := hold(t, b, mutex(name))
			must(t, s.Pause())
			calls := callsOf(b, held)
			delete(calls, "Await") // it waits until its context ends
			for range 100 {
				for call, f := range calls {
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					if err := f(ctx); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s answered %v", call, err)
					}
					cancel()
				}
			}
			must(t, s.Continue())
		})
	}
}
