package redislock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// neighbours are pairs of a token and the next: where texts change their length,
// where a Lua number loses the last digit, and at the ends.
var neighbours = [][2]fence.Token{
	{1, 2}, {9, 10}, {99, 100}, {1<<53 - 1, 1 << 53}, {1 << 53, 1<<53 + 1}, {1<<53 + 1, 1<<53 + 2},
	{999999999999999999, 1000000000000000000}, {1<<62 - 1, 1 << 62}, {1 << 62, 1<<62 + 1}, {math.MaxInt64 - 1, math.MaxInt64},
}

// writes are the ways to write through a Fence; each leaves "done" somewhere.
var writes = map[string]func(f *Fence, key string, t fence.Token) error{
	"Set": func(f *Fence, key string, t fence.Token) error {
		return f.Set(context.Background(), key, "done", 0, t)
	},
	"Del": func(f *Fence, key string, t fence.Token) error { return f.Del(context.Background(), key, t) },
	"Script": func(f *Fence, key string, t fence.Token) error {
		s := f.Script("return redis.call('SET', KEYS[1], ARGV[1])")
		return s.Run(context.Background(), t, []string{key}, "done").Err()
	},
}

// newFence is a Fence on a server of its own.
func newFence(t *testing.T) (*testserver.Server, *redis.Client, *Fence) {
	t.Helper()
	s := newServer(t)
	rdb := dial(t, s)
	return s, rdb, NewFence(rdb, nil)
}

func TestFenceRefusesSmallerTokensOnly(t *testing.T) {
	_, rdb, f := newFence(t)
	for name, write := range writes {
		for _, pair := range neighbours {
			old, new := pair[0], pair[1]
			key := fmt.Sprintf("%s/%d", name, old)
			for _, tok := range []fence.Token{old, old, new, new} {
				steps.Well(t, fmt.Sprint(key, ": ", tok), write(f, key, tok))
			}
			if got := rdb.Get(t.Context(), f.Mark(key)).Val(); got != new.String() {
				t.Errorf("%s: the mark is %s, want %v", key, got, new)
			}
			must(t, rdb.Set(t.Context(), key, "as it was", 0).Err())
			var stale *fence.StaleError
			if err := write(f, key, old); !errors.Is(err, fence.ErrStale) || !errors.As(err, &stale) ||
				*stale != (fence.StaleError{Resource: key, Token: old, Seen: new}) {
				t.Errorf("%s: %v after %v: %v", key, old, new, err)
			}
			if got := rdb.Get(t.Context(), key).Val(); got != "as it was" {
				t.Errorf("%s: refused, and yet the key became %q", key, got)
			}
		}
	}
}

func TestFenceRefusesWhatIsNotAWrite(t *testing.T) {
	s, rdb, f := newFence(t)
	for name, write := range writes {
		for _, tok := range []fence.Token{0, -1} {
			steps.Is(t, fmt.Sprint(name, " with token ", tok), write(f, "a", tok), fence.ErrNoToken)
		}
	}
	for what, err := range map[string]error{
		"no client":             NewFence(nil, nil).Set(t.Context(), "a", 1, 0, 7),
		"a prefix with a brace": NewFence(rdb, &FenceOptions{Prefix: "a{b}:"}).Set(t.Context(), "a", 1, 0, 7),
		"a negative Keep":       NewFence(rdb, &FenceOptions{Keep: -time.Second}).Set(t.Context(), "a", 1, 0, 7),
		"a negative expiration": f.Set(t.Context(), "a", 1, -time.Second, 7),
		"a value of no type":    f.Set(t.Context(), "a", struct{}{}, 0, 7),
		"no key":                f.Script("return 1").Run(t.Context(), 7, nil).Err(),
	} {
		if err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := ask(t, s, "DBSIZE"); n != "0" {
		t.Errorf("%s keys were written", n)
	}
}

func TestFencedSetKnowsExpirations(t *testing.T) {
	_, rdb, f := newFence(t)
	for _, c := range []struct {
		expiration time.Duration
		least      time.Duration
		most       time.Duration
	}{
		{time.Hour, 50 * time.Minute, time.Hour},
		{redis.KeepTTL, 50 * time.Minute, time.Hour},
		{0, -1, -1},
		{2 * time.Hour, 110 * time.Minute, 2 * time.Hour},
	} {
		must(t, f.Set(t.Context(), "a", []byte("\x00\xff"), c.expiration, 7))
		if left := rdb.PTTL(t.Context(), "a").Val(); left < c.least || left > c.most {
			t.Errorf("%v: %v left", c.expiration, left)
		}
		if got := rdb.Get(t.Context(), "a").Val(); got != "\x00\xff" {
			t.Errorf("%q", got)
		}
	}
	must(t, f.Set(t.Context(), "b", 1, time.Microsecond, 7)) // as short as can be, and not forever
	if left := rdb.PTTL(t.Context(), "b").Val(); left == -1 {
		t.Error("a microsecond became forever")
	}
}

func TestMarksStayAsLongAsTheyAreToldTo(t *testing.T) {
	s := newServer(t)
	rdb := dial(t, s)
	for keep, most := range map[time.Duration]time.Duration{0: -1, time.Hour: time.Hour} {
		f := NewFence(rdb, &FenceOptions{Prefix: fmt.Sprint("keep", keep, ":"), Keep: keep})
		for range 2 { // the second time the mark is there and the same
			must(t, f.Set(t.Context(), "a", 1, 0, 7))
			if left := rdb.PTTL(t.Context(), f.Mark("a")).Val(); left > most || most > 0 && left < most/2 {
				t.Errorf("Keep %v: %v left", keep, left)
			}
			if most > 0 { // the write that follows begins it again
				must(t, rdb.PExpire(t.Context(), f.Mark("a"), time.Minute).Err())
			}
		}
	}
}

func TestUsersScriptSeesItsOwnKeysAndArguments(t *testing.T) {
	s, _, f := newFence(t)
	for _, keys := range [][]string{{"k0"}, {"k0", "k1", "k2"}} {
		for _, args := range [][]any{nil, {"a0", "a1"}} {
			got, err := f.Script(`return {#KEYS, #ARGV, KEYS, ARGV}`).Run(t.Context(), 7, keys, args...).Slice()
			must(t, err)
			if got, want := fmt.Sprint(got...), fmt.Sprint(len(keys), len(args), keys, args); got != want {
				t.Errorf("a script sees %s, want %s", got, want)
			}
		}
	}
	for _, c := range []struct{ src, want string }{
		{"return 42", "42"},
		{"-- a comment first\nreturn 'x'", "x"},
		{flags(t, s) + "return 'flagged'", "flagged"},
		{"local mark, token, keep = 1, 2, 3\nreturn mark + token + keep", "6"},
	} {
		if got, err := f.Script(c.src).Run(t.Context(), 7, []string{"a"}).Result(); err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%q: %v, %v", c.src, got, err)
		}
	}
	if err := f.Script("return nil").Run(t.Context(), 7, []string{"a"}).Err(); err != redis.Nil {
		t.Errorf("nothing is %v", err)
	}
}

// flags is a first line that says what a script is. Redis before 7.0 takes none.
func flags(t *testing.T, s *testserver.Server) string {
	if isSince(t, s, 7, 0) {
		return "#!lua flags=allow-oom\n"
	}
	return "\n"
}

// A mistake in a script is told with the line where it is.
func TestErrorsOfUsersScriptsNameTheirOwnLines(t *testing.T) {
	s, _, f := newFence(t)
	for src, line := range map[string]string{
		"\n\nreturn redis.call('NO', 'SUCH')":          "user_script:3",
		"return nothing()":                             "user_script:1",
		flags(t, s) + "local a = 1\nreturn nothing() ": "user_script:3",
	} {
		err := f.Script(src).Run(t.Context(), 7, []string{"a"}).Err()
		if err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), line) {
			t.Errorf("%q: %v; want line %s", src, err, line)
		}
	}
}

// In a Cluster the mark must be in the slot of its key, and no two keys share one.
func TestMarksAreInTheSlotsOfTheirKeys(t *testing.T) {
	t.Parallel()
	f := NewFence(dialCluster(t, cluster(t)), nil)
	owner := map[string]string{}
	for _, key := range []string{
		"a", "stock:{sku1}", "{sku1}", "a{sku1}b{sku2}", "{", "}", "{}", "a{}b", "{}{a}", "a}b", "a}{b", "{a", "{{a}}", "{a}}",
		"{a}", "t:a", "t:{a}", "{1}", "s:{1}", "fence:{a}", "\x00\xff{", strings.Repeat("x}", 500),
	} {
		mark := f.Mark(key)
		if hashSlot(mark) != hashSlot(key) {
			t.Errorf("%q is in slot %d, its mark %q in %d", key, hashSlot(key), mark, hashSlot(mark))
		}
		if other, taken := owner[mark]; taken {
			t.Errorf("%q and %q share the mark %q", key, other, mark)
		}
		owner[mark] = key
		if !strings.HasPrefix(mark, DefaultFencePrefix) {
			t.Errorf("%q: a rule of an ACL for fence:* does not cover %q", key, mark)
		}
		for name, write := range writes {
			steps.Well(t, name+" "+key, write(f, key, 7))
		}
		steps.Is(t, key, f.Set(t.Context(), key, "x", 0, 6), fence.ErrStale)
	}
}

func TestFenceNeedsFewRights(t *testing.T) {
	s := newServer(t)
	line := "ACL SETUSER writer on >secret resetkeys ~stock:* ~fence:* resetchannels -@all +eval +evalsha +get +set +del"
	ask(t, s, aclLine(t, s, line)...)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "writer", Password: "secret"})
	t.Cleanup(func() { rdb.Close() })
	f := NewFence(rdb, nil)
	for name, write := range writes {
		steps.Well(t, name, write(f, "stock:{1}", 7))
	}
	steps.Is(t, "a smaller token", f.Set(t.Context(), "stock:{1}", 1, 0, 6), fence.ErrStale)
	if err := f.Set(t.Context(), "other", 1, 0, 7); err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "NOPERM") {
		t.Error(err)
	}
}

func TestMarkThatIsNoTokenLetsNobodyIn(t *testing.T) {
	_, rdb, f := newFence(t)
	for _, mark := range []string{"", "x", "-1", "0", "07", "7.0", "7 "} {
		must(t, rdb.Set(t.Context(), f.Mark("a"), mark, 0).Err())
		if err := f.Set(t.Context(), "a", 1, 0, 9); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("%q: %v", mark, err)
		}
	}
	must(t, rdb.Del(t.Context(), f.Mark("a")).Err())
	must(t, rdb.LPush(t.Context(), f.Mark("a"), 1).Err())
	if err := f.Set(t.Context(), "a", 1, 0, 9); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("a mark that is a list: %v", err)
	}
	if n := rdb.Exists(t.Context(), "a").Val(); n != 0 {
		t.Error("somebody was let in")
	}
}
