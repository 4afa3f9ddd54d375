package history

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
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

// broken breaks one rule. The sound history beside it differs by as little as possible.
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
		steps.Same(t, fmt.Sprint(name, ": ", vs), strings.Join(got, " "), want)
	}
}

func check(t *testing.T, text string, o Options) []Violation {
	t.Helper()
	vs, err := Check(read(t, text), o)
	steps.Must(t, err)
	return vs
}

func begins(e Event, want string) bool { return strings.HasPrefix(e.String(), want) }
