package redislock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/redis/go-redis/v9"
)

// oddKeys have bytes that mean something to Redis, to Cluster or to a terminal.
func oddKeys() []string {
	keys := []string{
		"a", "{", "}", "{}", "}{", "{a}b", "a{b}c{d}", "%", "%7B", "a%", "\x00", "a\nb", "\r\n", " ", "*", "?", "[a]", "\\",
		"锁/订单", "\xff\xfe", "\"", "'", ":", "c", "z", "}c", "}z", strings.Repeat("k", driver.MaxKey), strings.Repeat("{", driver.MaxKey),
	}
	for b := range 256 {
		keys = append(keys, "byte "+string([]byte{byte(b)})+" end")
	}
	return keys
}

func TestKeysOfAnyBytesAreToldApart(t *testing.T) {
	b := New(redis.NewClient(&redis.Options{}), nil)
	seen := make(map[string]string)
	for _, key := range oddKeys() {
		name := b.recordName(key)
		if other, ok := seen[name]; ok {
			t.Errorf("%q and %q are kept at %q", key, other, name)
		}
		seen[name] = key
		if back, ok := b.keyOf(name); !ok || back != key {
			t.Errorf("%q is kept at %q, which is read as %q, %v", key, name, back, ok)
		}
		if strings.Count(name, "{") != 1 || strings.Count(name, "}") != 1 || !strings.HasSuffix(name, "}") {
			t.Errorf("%q is kept at %q, whose hash tag is not the whole key", key, name)
		}
		if hashSlot(name) != hashSlot(name+"c") || hashSlot(name) != hashSlot(name+"z") {
			t.Errorf("the keys of %q are in different slots", key)
		}
		for n := range len(key) {
			if !strings.HasPrefix(keyEscaping.Escape(key), keyEscaping.Escape(key[:n])) {
				t.Errorf("%q does not begin with the code of %q", keyEscaping.Escape(key), key[:n])
			}
		}
	}
	for _, foreign := range []string{"fencelock:{a}c", "fencelock:{a}z", "fencelock:a", "other:{a}", "fencelock:{a", "fencelock:{%}", "fencelock:{%6}", "fencelock:{%61}", "fencelock:{%7b}", "fencelock:{a b}"} {
		if key, ok := b.keyOf(foreign); ok {
			t.Errorf("%q is taken for the record of %q", foreign, key)
		}
	}
}

// The server itself is asked which slot a name is in, and refuses a script whose
// keys are in two.
func TestSlotsAreThoseOfTheServer(t *testing.T) {
	t.Parallel()
	s := cluster(t)
	b := closing(t, New(dialCluster(t, s), nil))
	for _, key := range oddKeys() {
		name := b.recordName(key)
		got, err := s.Ask("CLUSTER", "KEYSLOT", name)
		if err != nil {
			t.Fatal(err)
		}
		if got != strconv.Itoa(int(hashSlot(name))) {
			t.Errorf("the server has %q in slot %s, we in %d", name, got, hashSlot(name))
		}
		k := hold(t, b, mutex(key))
		w := wait_(t, b, mutex(key))
		if l := line(t, b, key); len(l.Claims) != 2 || l.Key != key {
			t.Errorf("the line of %q is %+v", key, l)
		}
		leave(t, b, k)
		leave(t, b, w)
	}
}

func TestPrefixesDoNotMix(t *testing.T) {
	s := newServer(t)
	prefixes := []string{"", "a:", "a:b:", "app:{one}:", "x*", "x"}
	for _, p := range prefixes {
		hold(t, connect(t, s, &Options{Prefix: p}), mutex("key"))
	}
	for _, p := range prefixes {
		n := 0
		for l, err := range connect(t, s, &Options{Prefix: p}).Lines(t.Context(), "") {
			if err != nil || l.Key != "key" || len(l.Claims) != 1 {
				t.Errorf("prefix %q: %+v, %v", p, l, err)
			}
			n++
		}
		if n != 1 {
			t.Errorf("prefix %q lists %d locks", p, n)
		}
	}
}

func TestBadOptionsAreTheAnswerToTheFirstCall(t *testing.T) {
	for name, b := range map[string]*Backend{
		"no client":      New(nil, nil),
		"empty hash tag": New(redis.NewClient(&redis.Options{}), &Options{Prefix: "a{}b"}),
	} {
		if _, err := b.Enter(t.Context(), mutex("key")); !permanent(err) {
			t.Errorf("%s: Enter answered %v", name, err)
		}
		b.Close()
	}
}

// Whatever happens to a lock, what is left of it is one record that ends in about
// a day; with a mark, it stays.
func TestNothingStaysButTheCounter(t *testing.T) {
	_, b, rdb := served(t)
	ctx := t.Context()
	leave(t, b, hold(t, b, mutex("free")))

	k := hold(t, b, mutex("contended"))
	var contended []driver.Ticket
	for range 20 {
		contended = append(contended, wait_(t, b, mutex("contended")))
	}
	leave(t, b, k)
	for _, k := range contended {
		leave(t, b, k)
	}

	k = hold(t, b, mutex("marked"))
	must(t, b.Leave(ctx, k, driver.Exit{Mark: "m"}))
	leave(t, b, hold(t, b, mutex("marked")))

	names := rdb.Keys(ctx, "*").Val()
	if len(names) != 3 {
		t.Errorf("three empty lines keep %q", names)
	}
	for _, name := range names {
		ttl := rdb.TTL(ctx, name).Val()
		if marked := strings.Contains(name, "marked"); marked != (ttl < 0) {
			t.Errorf("%s stays for %v", name, ttl)
		}
		if ttl > 0 && (ttl < 24*time.Hour || ttl > 25*time.Hour) {
			t.Errorf("%s stays for %v, want about a day", name, ttl)
		}
	}
}

// A lock whose processes have all died vanishes, claims first.
func TestEverythingExpiresByItself(t *testing.T) {
	_, b, rdb := served(t)
	ctx := t.Context()
	for _, ttl := range []time.Duration{20 * minTTL, time.Minute, 48 * time.Hour, maxTTL} {
		key := ttl.String()
		// Alone, renewed, with waiters, renewed again, left with a tombstone, broken, lingering.
		c := mutex(key)
		c.TTL = ttl
		for stage := range 6 {
			switch stage {
			case 0:
				hold(t, b, c)
			case 1:
				k := driver.Ticket{Claim: c, Token: 1}
				must(t, renewOne(b, k))
			case 2:
				w := c
				w.ID = "waiter"
				enter(t, b, w)
			case 3:
				b.Renew(ctx, []driver.Ticket{{Claim: c}, {Claim: c}})
			case 4:
				b.Leave(ctx, driver.Ticket{Claim: driver.Claim{Key: key, ID: "left", TTL: ttl}}, driver.Exit{Tombstone: true})
			case 5:
				b.Leave(ctx, driver.Ticket{Claim: c, Token: 1}, driver.Exit{Linger: ttl})
			}
			for _, name := range rdb.Keys(ctx, "*{"+key+"}*").Val() {
				left := rdb.PTTL(ctx, name).Val()
				if left == -2 {
					continue // it has just expired
				}
				if left <= 0 {
					t.Errorf("stage %d, lease %v: %s never expires", stage, ttl, name)
				}
				want := ttl
				if strings.HasSuffix(name, "}") {
					want += 24 * time.Hour
				}
				if left < want-time.Second || left > 2*want+time.Hour {
					t.Errorf("stage %d, lease %v: %s expires in %v", stage, ttl, name, left)
				}
			}
		}
	}
}

// The last claim of a line leaves something behind: what is made for that expires too.
func TestWhatTheLastClaimLeavesBehindExpires(t *testing.T) {
	_, b, rdb := served(t)
	ctx := t.Context()
	ways := map[string]func(k driver.Ticket) error{
		"tombstone":            func(k driver.Ticket) error { return b.Leave(ctx, k, driver.Exit{Tombstone: true}) },
		"lingering, tombstone": func(k driver.Ticket) error { return b.Leave(ctx, k, driver.Exit{Linger: time.Second, Tombstone: true}) },
		"lingering":            func(k driver.Ticket) error { return b.Leave(ctx, k, driver.Exit{Linger: time.Second}) },
		"broken":               func(k driver.Ticket) error { return b.Break(ctx, k.Key, k.Token, "reason", 0) },
		"tombstone and mark":   func(k driver.Ticket) error { return b.Leave(ctx, k, driver.Exit{Mark: "m", Tombstone: true}) },
	}
	for name, end := range ways {
		for _, long := range []bool{false, true} {
			key := fmt.Sprint(name, " ", long)
			k := hold(t, b, mutex(key))
			if long {
				leave(t, b, wait_(t, b, mutex(key)))
			}
			if err := end(k); err != nil {
				t.Errorf("%s: %v", key, err)
			}
			for _, part := range []string{"c", "z"} {
				if left := rdb.PTTL(ctx, b.recordName(key)+part).Val(); left == -1 {
					t.Errorf("%s: %s stays for ever", key, part)
				}
			}
		}
	}
}

func TestRecordOfAnotherVersionIsRefused(t *testing.T) {
	_, b, rdb := served(t)
	for _, rec := range []string{"2 anything", "9", "v2", "10 held"} {
		rdb.Set(t.Context(), b.recordName("key"), rec, 0)
		everyCall(t, b, "key", func(name string, err error) {
			if !permanent(err) || !strings.Contains(err.Error(), "another version") {
				t.Errorf("%s on the record %q answered %v", name, rec, err)
			}
		})
		if got := rdb.Get(t.Context(), b.recordName("key")).Val(); got != rec {
			t.Errorf("the record of another version is now %q", got)
		}
	}
}

// A record that is damaged may be anybody's lock: the answer is an error, never a
// grant.
func TestDamagedRecordIsAnErrorAndNoGrant(t *testing.T) {
	_, b, rdb := served(t)
	ctx := t.Context()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	make_ := map[string]func(key string){
		"held":    func(key string) { hold(t, b, mutex(key)) },
		"renewed": func(key string) { renewOne(b, hold(t, b, mutex(key))) },
		"line":    func(key string) { hold(t, b, mutex(key)); wait_(t, b, mutex(key)) },
	}
	for name, make1 := range make_ {
		make1(name)
		rec := rdb.Get(ctx, b.recordName(name)).Val()
		for i := range 150 {
			bad := rec[:r.IntN(len(rec)-2)+2] // cut off
			if i%3 == 1 {
				n := r.IntN(len(rec) - 1)
				bad = rec[:n] + rec[n+1:] // a byte lost
			} else if i%3 == 2 {
				bad = rec[:2] + strings.Repeat("x", r.IntN(200))
			}
			rdb.Set(ctx, b.recordName(name), bad, time.Hour)
			k, err := b.Enter(ctx, mutex(name))
			if err == nil && k.Granted {
				t.Errorf("%s: with the record %q, of %q, a second claim was granted", name, bad, rec)
			}
			if err == nil {
				b.Leave(ctx, k, driver.Exit{})
			}
		}
		rdb.Del(ctx, b.recordName(name))
	}
	for _, bad := range []string{"1 ", "1 idle", "1 none", "1 held", "1 line", "1 idle" + strings.Repeat("0", 103)} {
		rdb.Set(ctx, b.recordName("key"), bad, 0)
		everyCall(t, b, "key", func(name string, err error) {
			if err == nil || driver.Gone(err) {
				t.Errorf("%s on the record %q answered %v", name, bad, err)
			}
		})
	}
}

// Eviction takes single keys. Nobody may be let in beside a holder that is left,
// and once all leases are over the lock works again.
func TestLineThatLostAPartHealsWhenItsLeasesAreOver(t *testing.T) {
	t.Parallel()
	_, b, rdb := served(t)
	ctx := t.Context()
	for _, part := range []string{"c", "z"} {
		key := "key " + part
		c := mutex(key)
		c.TTL = time.Second
		hold(t, b, c)
		w := mutex(key)
		w.TTL = c.TTL
		wait_(t, b, w)
		if n := rdb.Del(ctx, b.recordName(key)+part).Val(); n != 1 {
			t.Fatalf("there was no %s", part)
		}
		next := noWait(mutex(key))
		if k, err := b.Enter(ctx, next); err == nil {
			t.Errorf("without %s a claim was let in: %+v", part, k)
		}
		// Time passes: the leases end, and the loss is noticed. Nobody may join, or
		// the keys would be kept alive, and the loss with them.
		rec := rdb.Get(ctx, b.recordName(key)).Val()
		f := strings.Split(rec, " ")
		f[14] = "0000000000000001"
		eventually(t, "the leases are over", func() bool {
			for _, x := range rdb.ZRangeWithScores(ctx, b.recordName(key)+"z", 0, -1).Val() {
				if x.Score > float64(time.Now().UnixMicro()) {
					return false
				}
			}
			return true
		})
		rdb.Set(ctx, b.recordName(key), strings.Join(f, " "), time.Hour)
		if k, err := b.Enter(ctx, mutex(key)); !permanent(err) || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("without %s Enter answered %+v, %v", part, k, err)
		}
		// Then C and Z end.
		f[15] = "0000000000000001"
		rdb.Set(ctx, b.recordName(key), strings.Join(f, " "), time.Hour)
		k := hold(t, b, next)
		wait_(t, b, mutex(key))
		leave(t, b, k)
	}
}

// What is left of a line whose record was evicted must not count in the next one.
func TestLineWhoseRecordWasLostBeginsAnew(t *testing.T) {
	_, b, rdb := served(t)
	old := []driver.Ticket{hold(t, b, slots("key", 1, 2)), hold(t, b, slots("key", 1, 2)), wait_(t, b, slots("key", 2, 2))}
	rdb.Del(t.Context(), b.recordName("key"))
	for i, err := range b.Renew(t.Context(), old) {
		if !driver.Gone(err) {
			t.Errorf("Renew of claim %d of the lost line answered %v", i, err)
		}
	}
	now := []driver.Ticket{hold(t, b, slots("key", 1, 2)), hold(t, b, slots("key", 1, 2)), wait_(t, b, slots("key", 2, 2))}
	for i, err := range b.Renew(t.Context(), old) {
		if !driver.Gone(err) {
			t.Errorf("Renew of claim %d of the lost line answered %v", i, err)
		}
	}
	for i, k := range old {
		wantGone(t, fmt.Sprintf("Leave of claim %d of the lost line", i), b.Leave(t.Context(), k, driver.Exit{}))
	}
	if l := line(t, b, "key"); len(l.Claims) != 3 || l.Claims[2].Granted {
		t.Errorf("the new line is %+v", l)
	}
	leave(t, b, now[0])
	leave(t, b, now[1])
	granted(t, b, now[2])
	leave(t, b, now[2])
}

func TestKeyOfAnotherTypeIsToldPlainly(t *testing.T) {
	_, b, rdb := served(t)
	rdb.RPush(t.Context(), b.recordName("key"), "x")
	everyCall(t, b, "key", func(name string, err error) {
		if !permanent(err) || !strings.Contains(err.Error(), "holds something else") {
			t.Errorf("%s answered %v", name, err)
		}
	})
}

// callsOf are the calls of b on the claim of k.
func callsOf(b *Backend, k driver.Ticket) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Enter": func(ctx context.Context) error { return errOf(b.Enter(ctx, mutex(k.Key))) },
		"Await": func(ctx context.Context) error { return errOf(b.Await(ctx, k)) },
		"Renew": func(ctx context.Context) error { return b.Renew(ctx, []driver.Ticket{k})[0] },
		"Leave": func(ctx context.Context) error { return b.Leave(ctx, k, driver.Exit{}) },
		"Leave with a mark": func(ctx context.Context) error {
			return b.Leave(ctx, k, driver.Exit{Mark: "m"})
		},
		"Break": func(ctx context.Context) error { return b.Break(ctx, k.Key, k.Token, "reason", 0) },
		"Line":  func(ctx context.Context) error { return errOf(b.Line(ctx, k.Key)) },
		"Lines": func(ctx context.Context) (err error) {
			for _, err = range b.Lines(ctx, k.Key) {
			}
			return err
		},
	}
}

// everyCall makes each call on key once. Lines shows nothing of a key that is no record.
func everyCall(t *testing.T, b *Backend, key string, check func(name string, err error)) {
	t.Helper()
	ctx := context.Background()
	for name, call := range callsOf(b, driver.Ticket{Claim: mutex(key), Token: 7}) {
		err := call(ctx)
		if name != "Lines" || err != nil || b.rdb.Type(ctx, b.recordName(key)).Val() == "string" {
			check(name, err)
		}
	}
}

func noWait(c driver.Claim) driver.Claim {
	c.NoWait = true
	return c
}

func TestDurationsThatTheCoreNeverSendsDoNoHarm(t *testing.T) {
	_, b, _ := served(t)
	k := hold(t, b, mutex("key"))
	for _, d := range []time.Duration{-1, 0, 1, maxTTL * 2, -1 << 62, 1<<63 - 1} {
		r := k
		r.TTL = d
		if err := renewOne(b, r); err != nil {
			t.Errorf("Renew with a lease of %v: %v", d, err)
		}
	}
	for _, d := range []time.Duration{-1, 1, maxTTL * 2} {
		if err := b.Leave(t.Context(), k, driver.Exit{Linger: d}); err != nil {
			t.Errorf("Leave with a linger of %v: %v", d, err)
		}
		k = enter(t, b, mutex(fmt.Sprint("key", d)))
	}
	if err := b.Leave(t.Context(), k, driver.Exit{Mark: driver.Mark(strings.Repeat("m", driver.MaxMark+1))}); !permanent(err) {
		t.Errorf("Leave with a long mark answered %v", err)
	}
}
