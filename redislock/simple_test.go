package redislock

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// twins plays the same calls on two lines: one has the scripts as they are, the other has
// line.lua alone. The clock is the test's, and what is published is kept in a list.
type twins struct {
	t   *testing.T
	b   *Backend
	rdb *redis.Client
	key [2]string
	now int64 // µs
	log []string
}

// twinScript returns a script for the line with the short way, and for the one without.
func twinScript(t *testing.T, name string) (texts [2]string) {
	t.Helper()
	text := scriptText(name)
	for old, with := range map[string]string{
		"call('TIME')":                     "call('HMGET', 'clock', 's', 'us')",
		"redis.pcall('PUBLISH', channel, ": "call('RPUSH', R .. 'told', channel, ",
		"  if answer then return answer end": fmt.Sprintf(
			"  if answer then call('HINCRBY', 'short', '%s ' .. n, 1) return answer end", name),
	} {
		text = strings.ReplaceAll(text, old, with)
	}
	texts = [2]string{text, strings.ReplaceAll(text, "is_simple() and", "false and")}
	if long := name == "adopt" || name == "break"; strings.Contains(text, "TIME") || long != (texts[0] == texts[1]) {
		t.Fatalf("the script %s is not what this test expects", name)
	}
	return texts
}

// do calls a script for both, and compares the answers and what is left.
func (w *twins) do(what string, texts [2]string, argv ...any) {
	w.t.Helper()
	w.log = append(w.log, what)
	pipe := w.rdb.TxPipeline() // in one instant, or the ends would differ
	var called [2]*redis.Cmd
	var read [2]func() (string, [3]time.Duration)
	for i, key := range w.key {
		called[i] = pipe.Eval(w.t.Context(), texts[i], w.keys(key), argv...)
	}
	for i, key := range w.key {
		read[i] = w.state(pipe, w.keys(key))
	}
	if _, err := pipe.Exec(w.t.Context()); err != redis.Nil {
		must(w.t, err)
	}
	var answers, lines [2]string
	var ends [2][3]time.Duration
	for i := range called {
		answers[i] = strings.ReplaceAll(fmt.Sprint(called[i].Val()), w.keys(w.key[i])[0], "R") // errors name it
		lines[i], ends[i] = read[i]()
	}
	same := answers[0] == answers[1] && lines[0] == lines[1]
	for i, end := range ends[0] {
		same = same && (end-ends[1][i]).Abs() < time.Second
	}
	if !same {
		w.t.Fatalf("after %s\nthe short way answers %s and leaves, to expire in %v\n%s\nand line.lua %s and, in %v\n%s",
			strings.Join(w.log, "; "), answers[0], ends[0], lines[0], answers[1], ends[1], lines[1])
	}
}

func (w *twins) keys(key string) (names []string) {
	for _, name := range w.b.keys(key) {
		names = append(names, name.(string))
	}
	return names
}

// recordOfLine finds what two records of one line may differ in: 'since' and 'start' mean
// nothing there, and numbers may have leading zeros.
var (
	recordOfLine = regexp.MustCompile(`^(1 line .{62})\d{16} \d{16}`)
	leadingZeros = regexp.MustCompile(` 0+(\d)`)
)

// state asks for all that is kept of a lock, and when its three keys expire.
func (w *twins) state(pipe redis.Pipeliner, keys []string) func() (string, [3]time.Duration) {
	ctx := w.t.Context()
	rec, claims := pipe.Get(ctx, keys[0]), pipe.HGetAll(ctx, keys[1])
	order, told := pipe.ZRangeWithScores(ctx, keys[2], 0, -1), pipe.LRange(ctx, keys[0]+"told", 0, -1)
	var left [3]*redis.DurationCmd
	for i, key := range keys {
		left[i] = pipe.PTTL(ctx, key)
	}
	pipe.Del(ctx, keys[0]+"told")
	return func() (string, [3]time.Duration) {
		text := recordOfLine.ReplaceAllString(rec.Val(), "$1")
		if text != rec.Val() {
			text = leadingZeros.ReplaceAllString(text, " $1")
		}
		return fmt.Sprint(text, "\nC ", claims.Val(), "\nZ ", order.Val(), "\ntold ", told.Val()),
			[3]time.Duration{left[0].Val(), left[1].Val(), left[2].Val()}
	}
}

// sleep moves the clock, also back. What expires then is gone, as on a server.
func (w *twins) sleep(d time.Duration) {
	w.now += d.Microseconds()
	ctx := w.t.Context()
	must(w.t, w.rdb.HSet(ctx, "clock", "s", w.now/1e6, "us", w.now%1e6).Err())
	w.log = append(w.log, d.String())
	claims := w.b.recordName(w.key[0]) + "c"
	if left := w.rdb.PTTL(ctx, claims).Val(); left > 0 && !time.Now().Add(left).After(time.UnixMicro(w.now)) {
		for _, key := range w.key {
			w.rdb.Del(ctx, w.b.recordName(key)+"c", w.b.recordName(key)+"z")
		}
		w.log = append(w.log, "C and Z expire")
	}
}

// TestShortWayAnswersAndLeavesWhatTheLongOneDoes holds simple.lua to line.lua, in random lines.
func TestShortWayAnswersAndLeavesWhatTheLongOneDoes(t *testing.T) {
	t.Parallel()
	_, b, rdb := served(t)
	scripts := map[string][2]string{}
	for _, name := range []string{"enter", "leave", "renew", "adopt", "break"} {
		scripts[name] = twinScript(t, name)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, kind := range []string{"mutex", "read-write", "one size", "two sizes"} {
		for round := range 8 {
			r := rand.New(rand.NewPCG(seed, uint64(round)))
			name := fmt.Sprint(kind, " ", round)
			w := &twins{t: t, b: b, rdb: rdb, key: [2]string{name + " short", name + " long"}}
			w.now = time.Now().Add(time.Hour).UnixMicro() // so that the server lets nothing expire earlier
			for call := range 150 {
				w.sleep(pause(r))
				w.random(r, kind, scripts, call)
			}
		}
	}
	taken := rdb.HGetAll(t.Context(), "short").Val()
	t.Logf("by the short way, and how many were in line then: %v", taken)
	for _, way := range []string{"enter 1", "enter 2", "leave 0", "leave 1", "renew 1"} {
		if taken[way] == "" {
			t.Errorf("the short way was never taken to %s in line", way)
		}
	}
}

// pause is how much later the next call comes, or how much earlier by a clock set back.
func pause(r *rand.Rand) time.Duration {
	switch n := r.IntN(80); n {
	case 0:
		return -time.Duration(r.Int64N(int64(2 * time.Minute)))
	case 1:
		return time.Duration(r.Int64N(int64(5 * time.Minute)))
	case 2, 3, 4:
		return time.Duration(r.Int64N(int64(5 * time.Second)))
	}
	return time.Duration(r.Int64N(int64(50 * time.Millisecond)))
}

// random plays one call. There are few IDs at a time, so that calls are repeated and come late.
// Every third wants the same: a claim is only adopted for what it has.
func (w *twins) random(r *rand.Rand, kind string, scripts map[string][2]string, call int) {
	id := call/8 + r.IntN(6)
	c := mutex("")
	c.ID, c.Span = fmt.Sprint("id", id), 1+r.Int64N(3)
	c.TTL = []time.Duration{10 * time.Second, 30 * time.Second, 2 * time.Minute}[r.IntN(3)] << (call / 30)
	switch {
	case kind == "read-write" && id%3 > 0:
		c.Weight = 1
	case kind == "one size", kind == "two sizes" && id%3 == 0:
		c.Weight, c.Capacity = 1+int64(id%3), 3
	case kind == "two sizes":
		c.Weight, c.Capacity = int64(id%3), 2
	}
	claim, leaves, name := encodeClaim(&c, "channel of "+c.ID), prefixed(c.ID), fmt.Sprintf("call%04d", call)
	if front := w.rdb.ZRange(w.t.Context(), w.b.recordName(w.key[0])+"z", 0, 0).Val(); len(front) > 0 && r.IntN(2) == 0 {
		leaves = strings.TrimPrefix(front[0][1:], "~")
	}
	switch n := r.IntN(100); {
	case n < 45:
		noWait := r.IntN(4) == 0
		w.do(fmt.Sprint("enter ", claim, " ", noWait), scripts["enter"], claim, recordTTL(c.TTL), digit(noWait))
	case n < 55 || n < 84 && call < 50:
		w.do("leave "+leaves, scripts["leave"], leaves, name)
	case n < 84:
		mark, linger := "", time.Duration(0)
		if n == 55 && call > 100 {
			mark = "mark"
		} else if n < 58 {
			linger = c.TTL
		}
		w.do(fmt.Sprint("leave for good ", leaves, mark, linger), scripts["leave"],
			leaves, name, mark, lingerArg(linger), micros(c.TTL))
	case n < 92:
		w.do("renew "+leaves, scripts["renew"], leaves, encodeLease(c.TTL))
	case n < 96:
		old := fmt.Sprint("id", id+3)
		if w.rdb.HExists(w.t.Context(), w.b.recordName(w.key[0])+"c", "e~"+prefixed(c.ID)).Val() {
			return // the ID lingers: nobody adopts under it
		}
		w.do("adopt "+old+" as "+claim, scripts["adopt"], prefixed(old), claim)
	default:
		rec, linger := w.rdb.Get(w.t.Context(), w.b.recordName(w.key[0])).Val(), c.TTL*time.Duration(r.IntN(2))
		if len(rec) > 68 {
			w.do("break the last", scripts["break"], rec[49:68], "reason", name, lingerArg(linger))
		}
	}
}
