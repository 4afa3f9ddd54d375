package redislock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/redislock/internal/transport"
	"github.com/redis/go-redis/v9"
)

// serverTime returns how long the server has worked on scripts, in µs.
func serverTime(t testing.TB, rdb *redis.Client) float64 { return scriptStat(t, rdb, "usec") }

// scriptStat returns the sum of one number that the server keeps of the scripts it has run.
func scriptStat(t testing.TB, rdb *redis.Client, name string) float64 {
	t.Helper()
	var sum float64
	for _, m := range regexp.MustCompile(`cmdstat_eval(?:sha)?:(?:.*,)?`+name+`=(\d+)`).
		FindAllStringSubmatch(rdb.Info(context.Background(), "commandstats").Val(), -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// handOver measures what one hand-over costs the server in a line of n waiters,
// each hand-over followed by a newcomer.
func handOver(t testing.TB, b *Backend, rdb *redis.Client, n, rounds int) float64 {
	key := fmt.Sprint("line of ", n)
	line := []driver.Ticket{hold(t, b, mutex(key))}
	for range n {
		line = append(line, wait_(t, b, mutex(key)))
	}
	var costs []float64
	for range rounds {
		before := serverTime(t, rdb)
		leave(t, b, line[0])
		costs = append(costs, serverTime(t, rdb)-before)
		line = append(line[1:], enter(t, b, mutex(key)))
	}
	for _, k := range line {
		leave(t, b, k)
	}
	slices.Sort(costs)
	return costs[len(costs)/2]
}

// BenchmarkHandOver shows that a long line costs the server no more than a short
// one.
func BenchmarkHandOver(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := testserver.Redis(b)
			b.ReportMetric(handOver(b, connect(b, s, nil), dial(b, s), n, 300), "µs/hand-over")
		})
	}
}

// BenchmarkRenewInLine shows what a renewal costs the server where somebody waits.
func BenchmarkRenewInLine(b *testing.B) {
	s := testserver.Redis(b)
	store, rdb := connect(b, s, nil), dial(b, s)
	k := hold(b, store, mutex("k"))
	wait_(b, store, mutex("k"))
	work, calls := serverTime(b, rdb), scriptStat(b, rdb, "calls")
	for b.Loop() {
		must(b, renewOne(store, k))
	}
	b.ReportMetric((serverTime(b, rdb)-work)/(scriptStat(b, rdb, "calls")-calls), "µs/renewal")
}

// The number of commands that a hand-over runs does not depend on how many wait.
func TestHandOverRunsAsManyCommandsInALongLineAsInAShortOne(t *testing.T) {
	_, b, rdb := served(t)
	for _, sc := range []*transport.Script{enterScript, leaveScript, renewScript, awaitScript} {
		rdb.ScriptLoad(t.Context(), sc.Source())
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
		eventually(t, "the subscription is there", func() bool { return b.subscriber.epoch.Load() != 0 }) // it is a command, too
		must(t, rdb.ConfigResetStat(t.Context()).Err())
		leave(t, b, k)
		waiters = append(waiters, enter(t, b, claim(key)))
		must(t, errOf(b.read(t.Context(), waiters[n/2])))
		must(t, renewOne(b, waiters[n/2]))
		var calls []string
		for _, m := range regexp.MustCompile(`cmdstat_(\S+?):calls=(\d+)`).FindAllStringSubmatch(rdb.Info(t.Context(), "commandstats").Val(), -1) {
			if !strings.HasPrefix(m[1], "config") {
				calls = append(calls, m[1]+" "+m[2])
			}
		}
		slices.Sort(calls)
		counts[i] = strings.Join(calls, ", ")
		for _, w := range waiters {
			leave(t, b, w)
		}
	}
	if counts[0] != counts[1] {
		t.Errorf("with 10 waiters the server ran %s\nwith 1000 waiters %s", counts[0], counts[1])
	}
}

// TestContendedLine has what simple.lua must leave to line.lua, or must not forget, where
// claims wait.
func TestContendedLine(t *testing.T) {
	t.Parallel()
	_, b, rdb := served(t)
	contended := func(t *testing.T, claims ...driver.Claim) (line []driver.Ticket) {
		for _, c := range claims {
			line = append(line, enter(t, b, c))
		}
		return line
	}
	for name, c := range map[string]struct {
		claims func(key string) []driver.Claim
		leave  []int // in this order
		waits  int
		stay   []int
	}{
		"who leaves had only a part": {func(key string) []driver.Claim {
			return []driver.Claim{slots(key, 1, 2), slots(key, 2, 2), slots(key, 1, 2), slots(key, 1, 2)}
		}, []int{0, 3}, 2, []int{1, 2}},
		"who leaves was not the only holder": {func(key string) []driver.Claim {
			return []driver.Claim{slots(key, 1, 2), slots(key, 1, 2), slots(key, 2, 2)}
		}, []int{0}, 2, []int{1, 2}},
		"who leaves was not the first": {func(key string) []driver.Claim {
			return []driver.Claim{mutex(key), mutex(key), mutex(key)}
		}, []int{2}, 1, []int{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			k := contended(t, c.claims(t.Name())...)
			for _, i := range c.leave {
				leave(t, b, k[i])
			}
			if now, err := b.read(t.Context(), k[c.waits]); err != nil || now.Granted {
				t.Errorf("claim %d, which has to wait, is granted %v, %v", c.waits, now.Granted, err)
			}
			for _, i := range c.stay {
				leave(t, b, k[i])
			}
		})
	}
	t.Run("who leaves has expired", func(t *testing.T) {
		key := t.Name()
		k := contended(t, mutex(key), mutex(key), mutex(key))
		expire(t, b, rdb, key, k[:1])
		wantGone(t, "Leave of a claim that had expired", b.Leave(t.Context(), k[0], driver.Exit{}))
		leave(t, b, k[1])
		leave(t, b, k[2])
	})
	t.Run("who left for good", func(t *testing.T) {
		key := t.Name()
		k := contended(t, mutex(key), mutex(key), mutex(key))
		for i := range 2 {
			ok(t, b.Leave(t.Context(), k[i], driver.Exit{Tombstone: true}))
			_, err := b.Enter(t.Context(), k[i].Claim)
			wantGone(t, "Enter of a claim with a tombstone", err)
		}
		if now, err := b.read(t.Context(), k[2]); err != nil || !now.Granted {
			t.Errorf("the last of the line is granted %v, %v", now.Granted, err)
		}
		leave(t, b, k[2])
	})
	t.Run("a short lease in it ends", func(t *testing.T) {
		key := t.Name()
		short := mutex(key)
		short.TTL = 100 * time.Millisecond
		k := contended(t, mutex(key), mutex(key), short, mutex(key))
		<-time.After(short.TTL + 10*time.Millisecond)
		leave(t, b, k[0])
		leave(t, b, k[1])
		if now, err := b.read(t.Context(), k[3]); err != nil || !now.Granted {
			t.Errorf("behind a waiter whose lease has ended one is granted %v, %v", now.Granted, err)
		}
		leave(t, b, k[3])
	})
	t.Run("a long lease joins it", func(t *testing.T) {
		key := t.Name()
		long := mutex(key)
		long.TTL = time.Hour
		k := contended(t, mutex(key), mutex(key), long)
		lasts := func(what string, want time.Duration) {
			for _, name := range []string{b.recordName(key) + "c", b.recordName(key) + "z"} {
				if left := rdb.PTTL(t.Context(), name).Val(); left < want-time.Minute {
					t.Errorf("%q ends in %v, with a %s in it that lasts for %v", name, left, what, want)
				}
			}
		}
		lasts("claim", long.TTL)
		k[0].TTL = 5 * time.Hour
		ok(t, b.Leave(t.Context(), k[0], driver.Exit{Tombstone: true}))
		lasts("tombstone", k[0].TTL)
		for _, k := range k[1:] {
			leave(t, b, k)
		}
	})
	t.Run("who waits renews", func(t *testing.T) {
		key := t.Name()
		k := contended(t, mutex(key), mutex(key))
		w := k[1]
		ends := func() time.Duration {
			at := rdb.ZScore(t.Context(), b.recordName(key)+"z", "e"+prefixed(w.ID)).Val()
			return time.Until(time.UnixMicro(int64(at)))
		}
		for _, c := range []struct{ ttl, want time.Duration }{
			{w.TTL + 10*time.Second, w.TTL + 10*time.Second},
			{time.Second, w.TTL + 10*time.Second}, // no lease is shortened
			{time.Hour, time.Hour},
		} {
			w.TTL = c.ttl
			must(t, renewOne(b, w))
			if left := ends(); left > c.want || left < c.want-5*time.Second {
				t.Errorf("after a renewal for %v the lease ends in %v; want %v", c.ttl, left, c.want)
			}
			if left := rdb.PTTL(t.Context(), b.recordName(key)+"z").Val(); left < ends() {
				t.Errorf("the line ends in %v, and a claim in it in %v", left, ends())
			}
		}
		leave(t, b, w)
		wantGone(t, "Renew of a claim that has left", renewOne(b, w))
		leave(t, b, k[0])
	})
	t.Run("the next is told", func(t *testing.T) {
		key := t.Name()
		k := contended(t, mutex(key), mutex(key), mutex(key))
		subscribed(t, b)
		took := make(chan time.Duration)
		go func() { took <- granted(t, b, k[1]) }()
		parked(t, b, k[1])
		leave(t, b, k[0])
		wantPush(t, <-took)
		leave(t, b, k[1])
		leave(t, b, k[2])
	})
}

// member is a claim in the test's own idea of a line.
type member struct {
	driver.Ticket
	lingers bool
}

// TestGrantsFollowTheOneRule plays random calls on one line, with claims that
// expire at any moment, and compares with the rule that decides everything:
// granted(c) ⇔ weight(c) + Σ weight(b) for every live b before c ≤ capacity(c).
func TestGrantsFollowTheOneRule(t *testing.T) {
	t.Parallel()
	_, b, rdb := served(t)
	ctx := t.Context()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, kind := range []string{"read-write", "semaphore"} {
		for round := range 6 {
			r := rand.New(rand.NewPCG(seed, uint64(round)))
			key := fmt.Sprint(kind, " ", round)
			var want []member
			claim := func() driver.Claim {
				switch {
				case kind == "read-write" && r.IntN(3) == 0:
					return mutex(key)
				case kind == "read-write":
					return slots(key, 1, driver.RW)
				}
				return slots(key, 1+r.Int64N(4), 4)
			}
			var log []string
			for call := range 150 {
				var did string
				switch n := r.IntN(10); {
				case n < 4 || len(want) == 0:
					c := claim()
					k := enter(t, b, c)
					did = fmt.Sprintf("enter %d of %d", c.Weight, c.Capacity)
					want = append(want, member{Ticket: k})
				case n < 7:
					i := r.IntN(len(want))
					if want[i].lingers {
						continue
					}
					did = fmt.Sprintf("leave %d", i)
					leave(t, b, want[i].Ticket)
					want = slices.Delete(want, i, i+1)
				case n < 8:
					i := r.IntN(len(want))
					// Zero leaves a claim that lingers as it is, below zero ends it.
					linger := time.Duration(-r.Int64N(2))
					did = fmt.Sprintf("break %d with %d", i, linger)
					ok(t, b.Break(ctx, key, want[i].Token, "r", linger))
					if linger < 0 || !want[i].lingers {
						want = slices.Delete(want, i, i+1)
					}
				case n < 9:
					// Some leases end. Nothing notices before the next call.
					var ids []driver.Ticket
					kept := want[:0:0]
					for _, m := range want {
						if r.IntN(4) == 0 {
							ids = append(ids, m.Ticket)
						} else {
							kept = append(kept, m)
						}
					}
					did = fmt.Sprintf("expire %d", len(ids))
					expire(t, b, rdb, key, ids)
					want = kept
					if len(want) > 0 && r.IntN(2) == 0 {
						// Any call notices: here a read by one of those that are left.
						m := want[r.IntN(len(want))]
						if _, err := b.read(ctx, m.Ticket); err != nil && !m.lingers {
							t.Errorf("read: %v", err)
						}
					}
				default:
					i := r.IntN(len(want))
					if want[i].lingers {
						continue
					}
					did = fmt.Sprintf("linger %d", i)
					ok(t, b.Leave(ctx, want[i].Ticket, driver.Exit{Linger: time.Minute}))
					want[i].lingers = true
				}
				log = append(log, did)
				compare(t, b, key, want, call)
				if t.Failed() {
					t.Fatalf("%s, round %d: %s", kind, round, strings.Join(log, "; "))
				}
			}
			for _, m := range want {
				if !m.lingers {
					leave(t, b, m.Ticket)
				}
			}
		}
	}
}

// compare holds the line, and what its claims are told, to the rule.
func compare(t *testing.T, b *Backend, key string, want []member, call int) {
	t.Helper()
	l := line(t, b, key)
	if len(l.Claims) != len(want) {
		t.Errorf("call %d: %d claims are in line, want %d", call, len(l.Claims), len(want))
		return
	}
	var before int64
	for i, m := range want {
		should := m.Weight+before <= m.Capacity
		before += m.Weight
		got := l.Claims[i]
		if got.Token != m.Token || got.Granted != should || got.Lingering != m.lingers {
			t.Errorf("call %d: claim %d is %+v, want token %d, granted %v, lingering %v", call, i, got, m.Token, should, m.lingers)
		}
		if m.lingers {
			continue
		}
		now, err := b.read(context.Background(), m.Ticket)
		if err != nil {
			t.Errorf("call %d: read of claim %d: %v", call, i, err)
			continue
		}
		if now.Granted != should || !should && now.Ahead != i {
			t.Errorf("call %d: claim %d is told granted %v, %d ahead; want %v, %d", call, i, now.Granted, now.Ahead, should, i)
		}
	}
}

// expire ends leases, as time would.
func expire(t *testing.T, b *Backend, rdb *redis.Client, key string, ks []driver.Ticket) {
	t.Helper()
	ctx := t.Context()
	name := b.recordName(key)
	rec := rdb.Get(ctx, name).Val()
	if len(ks) == 0 || rec == "" {
		return
	}
	if strings.HasPrefix(rec, "1 held") || strings.HasPrefix(rec, "1 gone") {
		rec = rec[:86] + fmt.Sprintf("%016d", time.Now().Add(-maxTTL).UnixMicro()) + rec[102:] // the start of its lease
		rdb.Set(ctx, name, rec, 0)
		return
	}
	for _, k := range ks {
		for _, m := range []string{"e", "e~"} {
			rdb.ZAddXX(ctx, name+"z", redis.Z{Score: float64(time.Now().Add(-time.Minute).UnixMicro()), Member: m + prefixed(k.ID)})
		}
	}
	f := strings.Split(rec, " ")
	f[14] = fmt.Sprintf("%016d", 1) // soonest
	rdb.Set(ctx, name, strings.Join(f, " "), 0)
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
	got := make(chan error)
	go func() {
		for {
			if _, err := b.Await(context.Background(), k); err != nil {
				got <- err
				return
			}
		}
	}()
	for range 2 {
		ok(t, b.Close())
	}
	if err := <-got; err != driver.ErrClosed {
		t.Errorf("Await of a closed Backend answered %v", err)
	}
	everyCall(t, b, "key", func(name string, err error) {
		if !strings.Contains(err.Error(), driver.ErrClosed.Error()) {
			t.Errorf("%s after Close answered %v", name, err)
		}
	})
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

// TestLineRemembersItsLastCalls: a call whose answer was lost is sent again, and learns
// that it is done: in a long line after 63 others, and after three when all have left.
func TestLineRemembersItsLastCalls(t *testing.T) {
	_, b, _ := served(t)
	const many = 80
	for key, broken := range map[string]bool{"all leave": false, "some are broken": true} {
		line := []driver.Ticket{hold(t, b, mutex(key))}
		for len(line) < many {
			line = append(line, wait_(t, b, mutex(key)))
		}
		line[2], line[3] = line[3], line[2] // one who waits gives up
		send := func(i int) any {
			t.Helper()
			name := fmt.Sprintf("call%04d", i)
			st := b.command(leaveScript, key, prefixed(line[i].ID), name)
			if broken && i%8 == 5 {
				st = b.command(breakScript, key, fmt.Sprintf("%019d", line[i].Token), "", name, "0")
			}
			got := b.transport.Do(t.Context(), st)
			if got.Err != nil {
				t.Fatal(got.Err)
			}
			return got.Answer
		}
		sent := 0
		upTo := func(n int) {
			t.Helper()
			for ; sent < n; sent++ {
				if answer := send(sent); answer != "+" {
					t.Fatalf("%s: call %d answers %q", key, sent, answer)
				}
			}
		}
		known := func(from int) {
			t.Helper()
			for i := range sent {
				if answer := send(i); (answer == "+") != (i >= from) {
					t.Errorf("%s: call %d of %d, sent again, answers %q; known are those from %d on", key, i, sent, answer, from)
				}
			}
		}
		upTo(4)
		known(0)
		upTo(70)
		known(70 - 64)
		upTo(many)
		if broken { // the tombstones stay, and the record a line
			known(many - 64)
			continue
		}
		known(many - 4)
		leave(t, b, hold(t, b, mutex(key)))
		known(many - 3)
	}
}
