package history

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
)

var ops = []Op{"", Enter, Believe, Refused, Release, Left, Loss, Crash, Pause, Resume, Write, Denied, Look, Doubt, "odd"}

// read makes a history of lines such as
//
//	1s believe a/2 r t7 h1
//
// for the second claim of process a: "r" reads, "w2/3" takes two permits of three, t is
// the token, h the handle. The number of the claim is 1 if it is left out.
func read(t *testing.T, text string) []Event {
	t.Helper()
	var all []Event
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		at, err := time.ParseDuration(f[0])
		if err != nil || !slices.Contains(ops, Op(f[1])) {
			t.Fatalf("cannot read %q", line)
		}
		e := Event{At: at, Op: Op(f[1])}
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
				steps.Must(t, err)
			case 'h':
				e.Handle = word
			default:
				t.Fatalf("cannot read %q", word)
			}
		}
		all = append(all, e)
	}
	return all
}

// limits: a lease of 10s and an allowance, a fallback of 1s.
var limits = Options{Stuck: 11 * time.Second, Wake: 2 * time.Second}

// story is one of testdata: what is said of it, its events, and the two that clash.
type story struct {
	title, events string
	clash         []string
}

// stories reads a file of testdata. Each begins with # and a title; > begins a clash.
func stories(t testing.TB, file string) (all []story) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	steps.Must(t, err)
	for line := range strings.Lines(string(text)) {
		if title, ok := strings.CutPrefix(line, "# "); ok {
			all = append(all, story{title: strings.TrimSpace(title)})
			continue
		}
		s := &all[len(all)-1]
		if clash, ok := strings.CutPrefix(line, "> "); ok {
			s.clash = append(s.clash, strings.TrimSpace(clash))
		} else {
			s.events += line
		}
	}
	return all
}

// broken breaks one rule and no other. The sound history beside it differs by as little as
// possible.
type broken struct {
	name          string
	rule          Rule
	broken, sound string
	first, second string // the two events that clash
}

func cases(t testing.TB) (all []broken) {
	t.Helper()
	for pair := range slices.Chunk(stories(t, "rules.txt"), 2) {
		rule, name, _ := strings.Cut(pair[0].title, ": ")
		all = append(all, broken{name, Rule(rule), pair[0].events, pair[1].events, pair[0].clash[0], pair[0].clash[1]})
	}
	return all
}

func TestEachBrokenHistoryIsFlaggedForItsOwnReason(t *testing.T) {
	seen := map[Rule]bool{}
	for _, c := range cases(t) {
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

func TestLimitsOfZeroAreNotJudged(t *testing.T) {
	for _, c := range cases(t) {
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

// Processes write their own files: the order of the lines is no promise. What is found by
// several is told of the same one each time.
func TestOrderOfTheFilesDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range cases(t) {
		events := read(t, c.broken)
		at := map[time.Duration]bool{}
		for _, e := range events {
			at[e.At] = true
		}
		want := fmt.Sprint(check(t, c.broken, limits))
		for range 20 {
			mixed := slices.Clone(events)
			if len(at) == len(events) { // those of one instant keep their order
				r.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
			}
			if got, err := Check(mixed, limits); err != nil || fmt.Sprint(got) != want {
				t.Fatalf("%s: %v %v, want %v", c.name, got, err, want)
			}
		}
	}
}

// A gap is found when it ends, which may be long after it was one.
func TestBreachesAreInTheOrderOfTime(t *testing.T) {
	events := read(t, cases(t)[0].broken) // two hold from 3s on
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
	events := read(t, cases(t)[0].sound)
	events[1].Key = "other"
	if vs, err := Check(events, limits); err == nil {
		t.Errorf("a belief of another key than was asked for: no error, %v", vs)
	}
	if vs, err := Check(nil, limits); err != nil || len(vs) != 0 {
		t.Errorf("of nothing: %v %v", vs, err)
	}
}

// What a sound history may look like besides: nothing of this is a breach.
func TestSoundHistories(t *testing.T) {
	for _, c := range stories(t, "sound.txt") {
		if vs := check(t, c.events, limits); len(vs) != 0 {
			t.Errorf("%s: %v", c.title, vs)
		}
	}
}

// Breaches that need more than one thing to come together.
func TestBrokenHistories(t *testing.T) {
	for _, c := range stories(t, "broken.txt") {
		want, name, _ := strings.Cut(c.title, ": ")
		vs := check(t, c.events, limits)
		var got []string
		for _, v := range vs {
			got = append(got, string(v.Rule))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: want %s: %v", name, want, vs)
		}
	}
}

func TestTextSaysWhatIsBroken(t *testing.T) {
	texts := map[string]Rule{}
	for _, c := range cases(t) {
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
	} {
		if got := c.e.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
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
	steps.Must(t, err)
	return vs
}

func begins(e Event, want string) bool { return strings.HasPrefix(e.String(), want) }

// events makes a history of any bytes, four for each event.
func events(b []byte) []Event {
	var es []Event
	at := time.Duration(0)
	for len(b) >= 4 {
		at += time.Duration(b[0]>>4) * 100 * time.Millisecond
		e := Event{
			At: at, Op: ops[min(int(b[0]&15), len(ops)-1)], Process: fmt.Sprint("p", b[1]&1), Key: fmt.Sprint("k", b[1]>>1&1), Claim: fmt.Sprint("c", b[1]>>2&15),
			Handle: fmt.Sprint(b[1] >> 6), Kind: Kind(b[2] & 3), Weight: int64(int8(b[2]) >> 2), Size: int64(b[3] & 7), Token: int64(b[3] >> 3),
		}
		es = append(es, e)
		b = b[4:]
	}
	return es
}

// FuzzCheck: whatever a history holds, it is judged, or said to make no sense; and the
// same one is judged in the same way.
func FuzzCheck(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0x11, 0, 0, 8, 0x13, 0, 0, 8, 0x11, 4, 0, 8, 0x13, 4, 0, 8, 0x15, 0, 0, 8, 0x16, 0, 0, 8})
	f.Add([]byte{0x11, 0, 2, 11, 0x13, 0, 2, 11, 0x11, 5, 2, 11, 0x13, 5, 2, 11, 0x18, 0, 0, 0, 0xfd, 0, 0, 0})
	f.Add([]byte{0x11, 0, 0, 8, 0x19, 0, 0, 0, 0x13, 0, 0, 8, 0x1a, 0, 0, 0, 0x1b, 0, 0, 8, 0x17, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	o := Options{Stuck: time.Second, Wake: 100 * time.Millisecond}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4096 {
			return
		}
		es := events(b)
		before := slices.Clone(es)
		found, err := Check(es, o)
		if !slices.Equal(es, before) {
			t.Error("the history was changed")
		}
		again, err2 := Check(es, o)
		if (err == nil) != (err2 == nil) || !reflect.DeepEqual(found, again) {
			t.Errorf("judged as %v, %v, and then as %v, %v", found, err, again, err2)
		}
		for _, v := range found {
			if v.String() == "" || !slices.Contains(All(), v.Rule) {
				t.Errorf("a breach of no rule: %+v", v)
			}
		}
	})
}
