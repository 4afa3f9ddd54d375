package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// read makes a history of lines such as
//
//	1s believe a/2 r t7 h1
//
// for the second claim of process a: "r" reads, "w2/3" takes two permits of three, t is
// the token, h the handle. The number of the claim is 1 if it is left out.
func read(t *testing.T, text string) []Event {
	t.Helper()
	var all []Event
	kinds := map[string]Event{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		at, err := time.ParseDuration(f[0])
		op := slices.Index(opNames[:], f[1])
		if err != nil || op < 0 {
			t.Fatalf("cannot read %q", line)
		}
		e := Event{At: at, Op: Op(op)}
		if len(f) > 2 {
			process, n, _ := strings.Cut(f[2], "/")
			e.Process = process
			if !slices.Contains([]Op{Crash, Pause, Resume, Look}, e.Op) {
				e.Key, e.Claim = "k", process+"/"+n
			}
		}
		for _, word := range f[min(len(f), 3):] {
			switch word[0] {
			case 'r':
				e.Kind = Shared
			case 'w':
				e.Kind = Permit
				if _, err := fmt.Sscanf(word, "w%d/%d", &e.Weight, &e.Size); err != nil {
					t.Fatalf("cannot read %q: %v", word, err)
				}
			case 't':
				e.Token, err = strconv.ParseInt(word[1:], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
			case 'h':
				e.Handle = word
			default:
				t.Fatalf("cannot read %q", word)
			}
		}
		if e.Op == Enter {
			kinds[e.Claim] = e
		}
		all = append(all, e)
	}
	return all
}

// limits: a lease of 10s and an allowance, a fallback of 1s.
var limits = Options{Stuck: 11 * time.Second, Wake: 2 * time.Second}

// Each broken history breaks one rule and no other; the sound one beside it differs
// by as little as possible.
var cases = []struct {
	name          string
	rule          Rule
	broken, sound string
	first, second string // the two events that clash
}{
	{"two hold", Exclusion, `
		0s enter a
		1s believe a
		2s enter b
		3s believe b
		4s release a
		5s release b`, `
		0s enter a
		1s believe a
		2s enter b
		3s release a
		3s believe b
		5s release b`, "1s believe by a", "3s believe by b"},
	{"two hold since the same instant", Exclusion, `
		0s enter a
		0s enter b
		1s believe a
		1s believe b
		5s release b`, `
		0s enter a
		0s enter b
		1s believe a
		1s release a
		1s believe b`, "1s believe by a", "1s believe by b"},
	{"a holder and a permit", Exclusion, `
		0s enter a
		1s believe a
		2s enter b w1/3
		3s believe b`, `
		0s enter a
		1s believe a
		2s enter b w1/3
		3s loss a
		3s believe b`, "1s believe by a", "3s believe by b"},
	{"one goes on after a stop, looks, and says it holds", Exclusion, `
		0s enter a
		1s believe a
		2s pause a
		3s enter b
		13s believe b
		14s resume a
		15s believe a`, `
		0s enter a
		1s believe a
		2s pause a
		3s enter b
		13s believe b
		14s resume a
		15s loss a`, "13s believe by b", "15s believe by a"},
	{"the next grant has the same token", Tokens, `
		0s enter a
		1s believe a t7
		2s release a
		3s enter b
		4s believe b t7`, `
		0s enter a
		1s believe a t7
		2s release a
		3s enter b
		4s believe b t8`, "1s believe by a", "4s believe by b"},
	{"a smaller token for one who waited", Tokens, `
		0s enter a
		0s enter b
		1s believe a t7
		2s release a
		3s believe b t6`, `
		0s enter a
		0s enter b
		1s believe a t7
		1s grant b t6
		2s believe b t6
		2s release b
		2s release a`, "1s believe by a", "3s believe by b"},
	{"a smaller token seen by the store only", Tokens, `
		0s enter a
		1s grant a t7
		2s enter b
		3s grant b t6`, `
		0s enter a
		1s grant a t7
		2s enter b
		3s grant b t8`, "1s grant by a", "3s grant by b"},
	{"a re-entry with another token", Tokens, `
		0s enter a
		1s believe a t7 h1
		2s believe a t8 h2`, `
		0s enter a
		1s believe a t7 h1
		2s believe a t7 h2`, "1s believe by a", "2s believe by a"},
	{"a stopped holder writes", Fence, `
		0s enter a
		1s believe a t7
		2s pause a
		3s enter b
		13s believe b t8
		14s write b t8
		14500ms write b t8
		15s resume a
		16s write a t7`, `
		0s enter a
		1s believe a t7
		2s pause a
		3s enter b
		13s believe b t8
		14s write b t8
		14500ms write b t8
		15s resume a
		16s denied a t7`, "14.5s write by b", "16s write by a"},
	{"a stopped holder writes, and there are no tokens", Fence, `
		0s enter a
		1s believe a
		2s pause a
		3s enter b
		13s believe b
		14s write b
		14500ms write b
		15s resume a
		16s write a`, `
		0s enter a
		1s believe a
		2s pause a
		3s enter b
		13s believe b
		15s resume a
		16s write a
		17s write b`, "14.5s write by b", "16s write by a"},
	{"the write of one who was killed arrives late", Fence, `
		0s enter a
		1s believe a t7
		2s crash a
		3s enter b
		12s believe b t8
		13s write b t8
		14s write a t7`, `
		0s enter a
		1s believe a t7
		2s crash a
		3s enter b
		12s believe b t8
		13s write a t7
		14s write b t8`, "13s write by b", "14s write by a"},
	{"killed before it was granted", Stuck, `
		0s enter a
		1s crash a
		2s enter b
		13s look`, `
		0s enter a
		1s crash a
		2s enter b
		12s look`, "1s crash by a", "13s look by b"},
	{"killed while it held", Stuck, `
		0s enter a
		1s believe a
		2s enter b
		2s crash a
		14s believe b`, `
		0s enter a
		1s believe a
		2s enter b
		2s crash a
		13s believe b`, "2s crash by a", "14s look by b"},
	{"a release that nobody confirmed", Stuck, `
		0s enter a
		1s believe a
		2s enter b
		3s release a
		15s look`, `
		0s enter a
		1s believe a
		2s enter b
		3s release a
		14s look`, "3s release by a", "15s look by b"},
	{"stopped for long", Stuck, `
		0s enter a
		1s believe a
		2s enter b
		3s pause a
		15s resume a
		17s loss a`, `
		0s enter a
		1s believe a
		2s enter b
		3s pause a
		14s resume a
		40s believe a
		41s release a
		41s left a
		42s believe b`, "3s pause by a", "15s look by b"},
	{"the first in line is dead when the holder releases", Stuck, `
		0s enter a
		1s believe a
		2s enter b
		3s enter c
		4s crash b
		5s release a
		5s left a
		16s look`, `
		0s enter a
		1s believe a
		2s enter b
		3s enter c
		4s crash b
		5s release a
		5s left a
		15s believe c`, "4s crash by b", "16s look by c"},
	{"one who gave up without an answer is in the way", Stuck, `
		0s enter a
		1s loss a
		1s enter b
		13s look`, `
		0s enter a
		1s loss a
		1s enter b
		12s look
		12s refused b`, "1s loss by a", "13s look by b"},
	{"released, and nobody is told", WakeUp, `
		0s enter a
		1s believe a
		2s enter b
		3s release a
		3s left a
		6s believe b`, `
		0s enter a
		1s believe a
		2s enter b
		3s release a
		3s left a
		5s believe b`, "3s left by a", "6s look by b"},
	{"free from the beginning", WakeUp, `
		0s enter a
		3s look`, `
		0s enter a
		1s refused a
		3s look`, "0s enter by a", "3s look by a"},
	{"the waiter who gives up has waited too long", WakeUp, `
		0s enter a
		3s refused a`, `
		0s enter a
		1s pause a
		3s resume a
		4s refused a`, "0s enter by a", "3s look by a"},
	{"two who wait since the same instant", WakeUp, `
		0s enter b
		0s enter a
		3s look`, `
		0s enter b
		0s enter a
		2s look
		2s refused b`, "0s enter by a", "3s look by a"},
	{"who has waited longest is missed, whoever else waits", WakeUp, `
		0s enter c
		1s enter f
		1s enter a
		1s enter e
		1s enter b
		1s enter d
		3s look`, `
		0s enter c
		1s enter f
		1s enter a
		1s enter e
		1s enter b
		1s enter d
		2s refused c
		3s look`, "0s enter by c", "3s look by c"},
	{"many who wait since the same instant", WakeUp, `
		0s enter d
		0s enter f
		0s enter a
		0s enter e
		0s enter b
		0s enter c
		3s look`, `
		0s enter d
		0s enter f
		0s enter a
		0s enter e
		0s enter b
		0s enter c
		2s look`, "0s enter by a", "3s look by a"},
	{"entered twice, and another", Exclusion, `
		0s enter a
		1s believe a h1
		2s believe a h2
		3s enter b
		3s believe b`, `
		0s enter a
		1s believe a h1
		2s believe a h2
		3s enter b
		3s refused b`, "1s believe by a", "3s believe by b"},
	{"a handle is open when another is let in", Reentrancy, `
		0s enter a
		1s believe a h1
		1s believe a h2
		2s release a h1
		3s enter b
		4s believe b`, `
		0s enter a
		1s believe a h1
		1s believe a h2
		2s release a h1
		3s enter b
		4s release a h2
		4s believe b`, "1s believe by a", "4s believe by b"},
	{"one handle released twice counts twice", Reentrancy, `
		0s enter a
		1s believe a h1
		1s believe a h2
		2s release a h1
		2s release a h1
		3s enter b
		4s believe b`, `
		0s enter a
		1s believe a h1
		1s believe a h2
		2s release a h1
		2s release a h1
		3s release a h2
		3s release a h2
		3s enter b
		4s believe b`, "1s believe by a", "4s believe by b"},
	{"a writer beside a reader", ReadWrite, `
		0s enter a r
		1s believe a
		2s enter b r
		2s believe b
		3s enter c
		3s release a
		4s believe c`, `
		0s enter a r
		1s believe a
		2s enter b r
		2s believe b
		3s enter c
		3s release a
		4s release b
		4s believe c`, "2s believe by b", "4s believe by c"},
	{"a reader beside a writer", ReadWrite, `
		0s enter a
		1s believe a
		2s enter b r
		2s believe b`, `
		0s enter a
		1s believe a
		2s enter b r
		2s crash a
		2s believe b`, "1s believe by a", "2s believe by b"},
	{"more permits than there are", Semaphore, `
		0s enter a w2/3
		1s believe a
		2s enter b w2/3
		3s believe b`, `
		0s enter a w2/3
		1s believe a
		2s enter b w1/3
		3s believe b
		4s release a
		5s enter c w2/3
		6s believe c`, "1s believe by a", "3s believe by b"},
	{"the one who came first is let in last", Semaphore, `
		0s enter b w2/3
		1s enter a w2/3
		2s believe a
		3s believe b`, `
		0s enter b w2/3
		1s enter a w2/3
		2s believe a
		3s release a
		3s believe b`, "2s believe by a", "3s believe by b"},
	{"a permit that names no weight is one", Semaphore, `
		0s enter a w0/1
		1s believe a
		2s enter b w0/1
		3s believe b`, `
		0s enter a w0/2
		1s believe a
		2s enter b w0/2
		3s believe b`, "1s believe by a", "3s believe by b"},
	{"two sizes are in use", Semaphore, `
		0s enter a w2/3
		1s believe a
		2s enter b w2/3
		2s enter c w1/4
		3s believe b
		4s believe c`, `
		0s enter a w2/3
		1s believe a
		2s enter b w2/3
		2s enter c w1/4
		3s believe b`, "1s believe by a", "4s believe by c"},
}

func TestEachBrokenHistoryIsFlaggedForItsOwnReason(t *testing.T) {
	seen := map[Rule]bool{}
	for _, c := range cases {
		seen[c.rule] = true
		t.Run(string(c.rule)+" "+c.name, func(t *testing.T) {
			vs := check(t, c.broken, limits)
			if len(vs) != 1 || vs[0].Rule != c.rule || vs[0].Key != "k" {
				t.Fatalf("want one breach of %s: %v", c.rule, vs)
			}
			v := vs[0]
			if !begins(v.First, c.first) || !begins(v.Second, c.second) {
				t.Errorf("%v and %v clash; want %s and %s", v.First, v.Second, c.first, c.second)
			}
			if vs := check(t, c.sound, limits); len(vs) != 0 {
				t.Errorf("the sound history is flagged: %v", vs)
			}
		})
	}
	for _, r := range All() {
		if !seen[r] {
			t.Errorf("no history breaks %s", r)
		}
	}
}

// What flags a history is the rule it is named after: without it nothing does, and
// it alone is enough.
func TestARuleThatIsOffFlagsNothing(t *testing.T) {
	for _, c := range cases {
		without, alone := limits, limits
		without.Rules, alone.Rules = Without(c.rule), []Rule{c.rule}
		if vs := check(t, c.broken, without); len(vs) != 0 {
			t.Errorf("%s: flagged without %s: %v", c.name, c.rule, vs)
		}
		if got := Broken(check(t, c.broken, alone)); !slices.Equal(got, alone.Rules) {
			t.Errorf("%s: %s alone finds %v", c.name, c.rule, got)
		}
	}
	none := limits
	none.Rules = []Rule{}
	if vs := check(t, cases[0].broken, none); len(vs) != 0 {
		t.Errorf("flagged by no rule: %v", vs)
	}
}

func TestLimitsOfZeroAreNotJudged(t *testing.T) {
	for _, c := range cases {
		if c.rule != Stuck && c.rule != WakeUp {
			continue
		}
		o := limits
		if c.rule == Stuck {
			o.Stuck = 0
		} else {
			o.Wake = 0
		}
		if vs := check(t, c.broken, o); len(vs) != 0 {
			t.Errorf("%s: judged without a limit: %v", c.name, vs)
		}
	}
}

// Processes write their own files: the order of the lines is no promise.
func TestOrderOfTheFilesDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range cases {
		events := read(t, c.broken)
		want, err := Check(events, limits)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			mixed := slices.Clone(events)
			// Events of one instant keep their order.
			r.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
			slices.SortStableFunc(mixed, func(a, b Event) int {
				if a.At != b.At {
					return 0
				}
				return slices.Index(events, a) - slices.Index(events, b)
			})
			if slices.ContainsFunc(events, func(e Event) bool { return count(events, e.At) > 1 }) {
				continue
			}
			got, err := Check(mixed, limits)
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%s: %v %v, want %v", c.name, got, err, want)
			}
		}
	}
}

// What is found by several is told of the same one each time.
func TestTheSameHistoryIsJudgedInTheSameWay(t *testing.T) {
	for _, c := range cases {
		want := fmt.Sprint(check(t, c.broken, limits))
		for range 10 {
			if got := fmt.Sprint(check(t, c.broken, limits)); got != want {
				t.Fatalf("%s: %s, and then %s", c.name, want, got)
			}
		}
	}
}

// A gap is found when it ends, which may be long after it was one.
func TestBreachesAreInTheOrderOfTime(t *testing.T) {
	events := read(t, cases[0].broken) // two hold from 3s on
	gap := read(t, `
		0s enter c
		9s believe c`) // one was due after 2s
	for i := range gap {
		gap[i].Key = "other"
	}
	vs, err := Check(append(events, gap...), limits)
	if err != nil || len(vs) != 2 || vs[0].Rule != WakeUp || vs[1].Rule != Exclusion {
		t.Errorf("want %s and then %s: %v %v", WakeUp, Exclusion, vs, err)
	}
}

func count(events []Event, at time.Duration) (n int) {
	for _, e := range events {
		if e.At == at {
			n++
		}
	}
	return n
}

func TestAGapIsToldOnce(t *testing.T) {
	vs := check(t, `
		0s enter a
		1s believe a
		2s enter b
		2s enter c
		3s release a
		3s left a
		10s refused b
		20s refused c
		30s enter d
		40s believe d
		41s release d
		41s left d
		41s enter e
		50s believe e`, limits)
	if len(vs) != 2 || vs[0].At != 5*time.Second || vs[1].At != 43*time.Second {
		t.Errorf("want the first gap once, and the second: %v", vs)
	}
}

func TestKeysAreApart(t *testing.T) {
	events := read(t, cases[0].broken)
	for i := range events {
		if events[i].Process == "b" {
			events[i].Key = "other"
		}
	}
	if vs, err := Check(events, limits); err != nil || len(vs) != 0 {
		t.Errorf("%v %v", vs, err)
	}
}

func TestWhatMakesNoSenseIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"belief without a wish": `
			1s believe a`,
		"a claim enters twice": `
			0s enter a
			1s enter a`,
		"release of what was never held": `
			0s enter a
			1s release a`,
		"refused while it holds": `
			0s enter a
			1s believe a
			2s refused a`,
		"a lost lock comes back": `
			0s enter a
			1s believe a
			2s loss a
			3s believe a`,
		"the dead come back": `
			0s enter a
			1s crash a
			2s believe a`,
		"the dead enter": `
			0s crash a
			1s enter a`,
	} {
		if vs, err := Check(read(t, text), limits); err == nil {
			t.Errorf("%s: no error, %v", name, vs)
		}
	}
	events := read(t, cases[0].sound)
	events[1].Key = "other"
	if vs, err := Check(events, limits); err == nil {
		t.Errorf("a belief of another key than was asked for: no error, %v", vs)
	}
	if vs, err := Check(nil, limits); err != nil || len(vs) != 0 {
		t.Errorf("of nothing: %v %v", vs, err)
	}
}

func TestReleaseMayBeCalledAgain(t *testing.T) {
	for _, text := range []string{`
		0s enter a
		1s believe a
		2s release a
		3s release a`, `
		0s enter a
		1s believe a
		2s loss a
		3s release a`} {
		if vs := check(t, text, limits); len(vs) != 0 {
			t.Error(vs)
		}
	}
}

// What a sound history may look like besides: nothing of this is a breach.
func TestSoundHistories(t *testing.T) {
	for name, text := range map[string]string{
		"a long hold with a waiter": `
			0s enter a
			1s believe a
			2s enter b
			3600s release a
			3600s left a
			3601s believe b`,
		"a long hold by one who was let in after a crash": `
			0s enter a
			1s believe a
			1s crash a
			2s enter b
			3s believe b
			4s enter c
			3600s release b
			3600s left b
			3601s believe c`,
		"a stopped waiter is not missed": `
			0s enter a
			1s pause a
			3600s look`,
		"a waiter that goes on has its time again": `
			0s enter a
			1s pause a
			3600s resume a
			3601s believe a`,
		"a grant whose answer is on its way": `
			0s enter a
			1s grant a t7
			60s believe a t7
			61s release a`,
		"a stopped holder beside the next": `
			0s enter a
			1s believe a
			2s pause a
			3s enter b
			13s believe b
			14s resume a
			15s loss a
			16s enter a/2
			17s release b
			17s left b
			18s believe a/2`,
		"a stopped reader beside a writer": `
			0s enter a r
			1s believe a
			2s pause a
			3s enter b
			13s believe b
			14s release b
			15s enter c
			15s believe c`,
		"a stopped permit is not counted": `
			0s enter a w2/3
			1s believe a
			2s pause a
			3s enter b w3/3
			13s believe b`,
		"permits come back": `
			0s enter a w3/3
			1s believe a
			2s release a
			2s left a
			3s enter b w3/3
			3s believe b
			4s loss b
			5s enter c w3/3
			5s believe c`,
		"a size is in use until the last of its claims has gone": `
			0s enter a w1/9
			1s believe a
			1s enter b w1/9
			2s believe b
			3s release a
			4s enter c w2/3
			5s believe c
			6s enter d w2/3
			7s believe d`,
		"readers' tokens order nothing": `
			0s enter a r
			1s believe a t9
			2s release a
			3s enter b
			3s believe b t8
			4s release b
			4s enter c r
			4s believe c t7
			5s write c t7`,
		"a reader writes what it likes": `
			0s enter a
			1s believe a t7
			2s write a t7
			3s release a
			4s enter b r
			4s believe b t6
			5s write b t6`,
		"a write after its release, before the next": `
			0s enter a
			1s believe a t7
			2s release a
			3s write a t7
			4s enter b
			5s believe b t8
			6s write b t8`,
		"what is told of the dead": `
			0s enter a
			1s believe a
			1s crash a
			2s left a
			2s grant a
			2s denied a
			2s write a`,
		"a handle that looks twice is one handle": `
			0s enter a
			1s believe a h1
			2s believe a h1
			3s release a h1
			3s left a
			4s enter b
			4s believe b`,
		"one who is refused is not missed": `
			0s enter a
			1s believe a
			2s enter b
			2s refused b
			3s release a
			3s left a
			60s look`,
		"a re-entry whose token nobody noted": `
			0s enter a
			1s believe a t7 h1
			1s believe a h2`,
		"a belief that ends as it begins": `
			0s enter a
			1s believe a
			1s enter b
			2s believe b
			2s loss b`,
		"who comes long after a release has its own time": `
			0s enter a
			1s believe a
			2s release a
			2s left a
			60s enter b
			61s believe b`,
		"one was granted and does not know yet, another waits": `
			0s enter a
			1s grant a t7
			2s enter b
			30s refused b
			60s believe a t7`,
		"one who came later was granted and does not know yet": `
			0s enter b
			1s enter a
			1s grant a t7
			30s refused b
			60s believe a t7`,
		"a write of which nobody noted the token": `
			0s enter a
			1s believe a t7
			2s write a t7
			3s write a
			4s write a t7`,
		"tokens say who is the later one, not who heard of it first": `
			0s enter a
			0s enter b
			1s pause b
			12s believe a t8
			14s believe b t7
			15s write b t7
			16s write a t8`,
		"a reader that came after the permits heard of its grant before": `
			0s enter a w3/3
			0s enter b r
			1s believe b
			2s believe a`,
		"a crash is an excuse for as long as a lease lasts, whoever was granted meanwhile": `
			0s enter a
			0s enter x
			500ms crash x
			1s believe a
			2s enter b
			3s release a
			3s left a
			11s believe b`,
		"a loss is told of nobody twice": `
			0s enter a
			1s believe a
			2s loss a
			3s loss a
			14s enter b
			15s believe b`,
	} {
		if vs := check(t, text, limits); len(vs) != 0 {
			t.Errorf("%s: %v", name, vs)
		}
	}
}

// Breaches that need more than one thing to come together.
func TestBrokenHistories(t *testing.T) {
	for _, c := range []struct {
		name string
		want string
		text string
	}{
		{"two gaps are two", "I6 I6", `
			0s enter a
			5s believe a
			6s release a
			6s left a
			7s enter b
			20s believe b`},
		{"a crash long ago excuses nobody", "I6", `
			0s enter a
			1s crash a
			2s enter b
			3s believe b
			4s enter c
			100s release b
			100s left b
			104s believe c`},
		{"a crash while another holds lets nobody wait for ever", "I5", `
			0s enter a
			1s believe a
			2s enter b
			3s enter c
			4s crash b
			5s release a
			5s left a
			60s refused c`},
		{"three writers are two breaches", "I1 I1", `
			0s enter a
			0s enter b
			0s enter c
			1s believe a
			2s believe b
			3s believe c`},
		{"a size is in use only while its claim is there", "I11", `
			0s enter a w1/9
			1s believe a
			2s release a
			3s enter b w2/3
			3s believe b
			4s enter c w2/3
			4s believe c`},
		{"a refused size is not in use", "I11", `
			0s enter a w2/3
			1s believe a
			2s enter b w1/9
			2s refused b
			3s enter c w2/3
			3s believe c`},
		{"every handle of a lost grant is lost", "I9", `
			0s enter a
			1s believe a h1
			1s believe a h2
			2s release a h1
			3s enter b
			3s believe b
			4s loss a
			5s release a h2
			6s release b
			7s enter c
			7s believe c`},
		{"writes of three, the middle one late", "I2b I2b", `
			0s enter a
			1s believe a t1
			2s release a
			3s enter b
			4s believe b t2
			5s release b
			6s enter c
			7s believe c t3
			8s write c t3
			9s write b t2
			10s write a t1
			11s write c t3`},
		{"the same without tokens", "I2b I2b", `
			0s enter a
			1s believe a
			2s release a
			3s enter b
			4s believe b
			5s release b
			6s enter c
			7s believe c
			8s write c
			9s write b
			10s write a
			11s write c`},
		{"writes of three, the first and the middle one late", "I2b I2b", `
			0s enter a
			1s believe a t1
			2s release a
			3s enter b
			4s believe b t2
			5s release b
			6s enter c
			7s believe c t3
			8s write c t3
			9s write a t1
			10s write b t2`},
		{"the same first and middle one without tokens", "I2b I2b", `
			0s enter a
			1s believe a
			2s release a
			3s enter b
			4s believe b
			5s release b
			6s enter c
			7s believe c
			8s write c
			9s write a
			10s write b`},
		{"one wrote before the next, and after it", "I2b", `
			0s enter a
			1s believe a
			2s release a
			3s enter b
			4s believe b
			5s write a
			6s write b
			7s write a`},
		{"the largest token that was granted counts, not the last", "I2 I2", `
			0s enter a
			1s grant a t9
			2s enter b
			3s grant b t7
			4s enter c
			5s grant c t8`},
		{"a writer beside too many permits is one breach more", "I11 I1", `
			0s enter a w2/3
			1s believe a
			2s enter b w2/3
			3s believe b
			4s enter c
			5s believe c`},
		{"a crash and a release whose times are over at once", "I5", `
			0s enter x
			0s enter a
			0s enter b
			1s crash x
			2s believe a
			10s release a
			10s left a
			13s look`},
		{"one who has released is stopped, and that excuses nobody", "I6", `
			0s enter a
			1s believe a
			2s enter b
			3s release a
			3s left a
			4s pause a
			8s look`},
		{"one stop excuses no later claim", "I1", `
			0s pause a
			1s resume a
			2s enter a
			2s believe a
			3s enter b
			3s believe b`},
		{"a stop before the belief excuses it until it looks", "I1", `
			0s enter a
			0s pause a
			1s enter b
			1s believe b
			2s believe a
			3s resume a
			4s believe a`},
		{"one breach for two handles of an instant", "I1", `
			0s enter a
			1s believe a
			2s enter b
			2s believe b h1
			2s believe b h2`},
		{"an earlier holder that looks again is still the earlier one", "I1 I2b", `
			0s enter a
			1s believe a
			2s pause a
			3s enter b
			13s believe b
			14s write b
			15s resume a
			16s believe a
			17s write a`},
		{"a loss after the release changes nothing", "I6", `
			0s enter a
			1s believe a
			2s release a
			2s left a
			3s loss a
			3s enter b
			6s look`},
		{"a loss after the refusal changes nothing", "I6", `
			0s enter a
			1s refused a
			2s loss a
			2s enter b
			5s look`},
		{"a second release changes nothing", "I6", `
			0s enter a
			1s believe a
			2s enter b
			3s release a
			3s left a
			4s release a
			8s look`},
		{"a release after the loss changes nothing", "I6", `
			0s enter a
			1s believe a
			2s loss a
			14s enter b
			15s release a
			20s look`},
		{"the store has confirmed the end of one who was killed", "I6", `
			0s enter a
			1s believe a
			2s enter b
			3s crash a
			4s left a
			9s look`},
		{"one who was stopped long ago is as good as any", "I6", `
			0s enter a
			1s pause a
			100s resume a
			104s look`},
		{"the largest token that has ended counts, not the last", "I1 I2", `
			0s enter c
			0s enter a
			0s enter b
			1s believe a t5
			2s believe b t9
			3s release b
			4s release a
			5s believe c t7`},
		{"a gap goes on when one of two waiters gives up", "I6", `
			0s enter a
			1s enter b
			3s refused a
			9s look`},
	} {
		vs := check(t, c.text, limits)
		var got []string
		for _, v := range vs {
			got = append(got, string(v.Rule))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: want %s: %v", c.name, c.want, vs)
		}
	}
}

func TestTextSaysWhatIsBroken(t *testing.T) {
	texts := map[string]Rule{}
	for _, c := range cases {
		v := check(t, c.broken, limits)[0]
		if other, ok := texts[v.Text]; ok && other != v.Rule || v.Text == "" {
			t.Errorf("%s and %s say the same: %q", other, v.Rule, v.Text)
		}
		texts[v.Text] = v.Rule
		if s := v.String(); !strings.HasPrefix(s, string(c.rule)+` of "k" at `) {
			t.Errorf("%s", s)
		}
		if says, ok := map[Rule]string{Stuck: "is gone", WakeUp: "was released"}[v.Rule]; ok && !strings.Contains(v.Text, says) {
			t.Errorf("%s: %q does not say %q", c.name, v.Text, says)
		}
	}
}

func TestEventsAreTold(t *testing.T) {
	for _, c := range []struct {
		e    Event
		want string
	}{
		{Event{At: time.Second, Op: Believe, Process: "a", Key: "k", Token: 7}, `1s believe by a of "k" token 7`},
		{Event{At: time.Second, Op: Look}, `1s look`},
		{Event{Op: Doubt + 1}, `0s op 15`},
	} {
		if got := c.e.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if got := fmt.Sprint(Exclusive, Shared, Permit, Permit+1); got != "exclusive shared permit kind 3" {
		t.Errorf("kinds are %s", got)
	}
}

// A simulated lock that keeps the rules is never flagged, and one that now and then
// lets a second one in always is.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		sound := simulate(r, 0)
		if vs, err := Check(sound, limits); err != nil || len(vs) != 0 {
			t.Fatalf("seed %d: %v %v", seed, vs, err)
		}
		broken := simulate(r, 1+r.IntN(20))
		if vs, err := Check(broken, limits); err != nil || !slices.Contains(Broken(vs), Exclusion) {
			t.Fatalf("seed %d: %v %v", seed, vs, err)
		}
	}
}

// simulate runs a mutex with a line for a while. The n-th grant, if n is not 0, is
// made while another holds.
func simulate(r *rand.Rand, n int) []Event {
	var all []Event
	now := time.Duration(0)
	token := int64(0)
	add := func(op Op, who string, t int64) {
		now += time.Duration(r.IntN(100)) * time.Millisecond
		all = append(all, Event{At: now, Op: op, Process: who, Key: "k", Claim: who, Token: t})
	}
	for i := 1; i <= 30; i++ {
		who := fmt.Sprint("p", i)
		token++
		add(Enter, who, 0)
		add(Believe, who, token)
		add(Write, who, token)
		if i == n {
			other := fmt.Sprint("q", i)
			token++
			add(Enter, other, 0)
			now += time.Millisecond
			add(Believe, other, token)
			add(Write, other, token)
			now += time.Millisecond
			add(Release, other, 0)
			now += time.Millisecond
		}
		add(Release, who, 0)
		add(Left, who, 0)
	}
	return all
}

func check(t *testing.T, text string, o Options) []Violation {
	t.Helper()
	vs, err := Check(read(t, text), o)
	if err != nil {
		t.Fatal(err)
	}
	return vs
}

func begins(e Event, want string) bool { return strings.HasPrefix(e.String(), want) }

func BenchmarkCheck(b *testing.B) {
	var all []Event
	for i := range 3000 {
		at := time.Duration(i) * time.Minute
		for _, e := range simulate(rand.New(rand.NewPCG(uint64(i), 0)), 0) {
			e.At += at
			e.Token += int64(i) * 100
			e.Claim, e.Process = fmt.Sprint(e.Claim, " ", i), fmt.Sprint(e.Process, " ", i)
			e.Key = fmt.Sprint(i % 10)
			all = append(all, e)
		}
	}
	b.ResetTimer()
	for range b.N {
		if vs, err := Check(all, limits); err != nil || len(vs) > 0 {
			b.Fatal(vs, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(all)), "ns/event")
}
