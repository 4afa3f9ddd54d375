package lab

import (
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/redis/go-redis/v9/logging"
)

func TestMain(m *testing.M) {
	logging.Disable() // a node that cannot be reached is part of the play
	m.Run()
}

// What each scheme breaks is told in docs/lab.md, which the command's tests compare.
func TestEverySchemeBreaksAsTold(t *testing.T) {
	for i, e := range All() {
		if e.Number != i+1 {
			t.Fatalf("scheme %d is at position %d", e.Number, i+1)
		}
		t.Run(e.Title.EN, func(t *testing.T) {
			t.Parallel()
			r, err := e.Play(t.Context(), t.TempDir())
			steps.Must(t, err)
			if got := r.Scheme.Broken(); len(got) == 0 || !slices.Equal(got, e.Breaks) {
				t.Errorf("the scheme breaks %v and says that it breaks %v", got, e.Breaks)
			}
			if len(r.Ours.Violations) > 0 {
				t.Errorf("fencelock breaks %v", r.Ours.Violations)
			}
			checkExcused(t, e, r.Ours.Excused)
			if r.AsTold(e) == t.Failed() {
				t.Errorf("AsTold says %v", r.AsTold(e))
			}
		})
	}
}

// checkExcused: what is excused is said, and nothing is excused that does not happen.
func checkExcused(t *testing.T, e Experiment, excused []history.Violation) {
	if (len(excused) > 0) != e.overlaps || e.overlaps && e.Note.EN == "" {
		t.Errorf("excused is %v, and the note says %q", excused, e.Note.EN)
	}
	for _, v := range excused {
		if v.Rule != history.Exclusion || e.Number != 7 && (e.Number != 8 || v.Key != "lock") {
			t.Errorf("%v must not be excused", v)
		}
	}
}

// mended are schedules with the flaw taken out of their schemes.
var mended = map[int]func(*stage){
	15: workPanics(func(work, unlock func()) {
		defer unlock()
		work()
	}),
	16: releaseOfAnother(func() (chan struct{}, chan struct{}) { return make(chan struct{}), make(chan struct{}) }),
	17: slowDelete(func(t *table, c *client) {
		t.delete("owner = '"+c.name+"'", func(r row) bool { return r.owner == c.name })
	}),
	18: sessionsEnd(stopsWork, takesOrWatches),
}

// stopsWork is a holder that stops when its session may be over.
func stopsWork(c *client) { c.event(history.Loss) }

// takesOrWatches begins again after each event.
func takesOrWatches(n *ephemeral, c *client) bool {
	n.hears(c)
	return n.lockOrWatch(c)
}

func TestEachFlawOfTheBareNodeBreaksIt(t *testing.T) {
	for name, schedule := range map[string]func(*stage){
		"the holder works on": sessionsEnd(worksOn, takesOrWatches),
		"any event will do":   sessionsEnd(stopsWork, onAnyEvent),
	} {
		e := Experiment{scheme: schedule, ours: func(*stage) {}}
		r, err := e.Play(t.Context(), t.TempDir())
		if err != nil || len(r.Scheme.Violations) != 1 || r.Scheme.Violations[0].Rule != history.Exclusion {
			t.Errorf("%s: it breaks %v, %v; want I1 once", name, r.Scheme.Violations, err)
		}
	}
}

// The verdict comes from what happened, and not from what the text says.
func TestMendedSchemeIsNotAsTold(t *testing.T) {
	for number, schedule := range mended {
		e := All()[number-1]
		t.Run(e.Title.EN, func(t *testing.T) {
			t.Parallel()
			e.scheme = schedule
			if r, err := e.Play(t.Context(), t.TempDir()); err != nil || len(r.Scheme.Violations) > 0 || r.AsTold(e) {
				t.Errorf("the mended scheme breaks %v; AsTold says %v: %v", r.Scheme.Violations, r.AsTold(e), err)
			}
		})
	}
}

func TestEverythingIsSaidInBothLanguages(t *testing.T) {
	for _, e := range All() {
		for what, x := range map[string]Text{"Title": e.Title, "Taught": e.Taught, "Flaw": e.Flaw, "Cure": e.Cure, "Note": e.Note} {
			if (x.EN == "") != (x.ZH == "") || x.EN == "" && what != "Note" {
				t.Errorf("scheme %d, %s: %+v", e.Number, what, x)
			}
			if strings.ContainsFunc(x.EN, func(r rune) bool { return r >= 0x2e80 }) {
				t.Errorf("scheme %d, %s: the English text is not English: %s", e.Number, what, x.EN)
			}
			if x.ZH != "" && what != "Title" && !strings.ContainsFunc(x.ZH, func(r rune) bool { return r >= 0x2e80 }) {
				t.Errorf("scheme %d, %s: the Chinese text is not Chinese: %s", e.Number, what, x.ZH)
			}
		}
	}
}

func TestWhatIsSaidBesideExperimentsIsInBothLanguages(t *testing.T) {
	for text := range strings.SplitSeq(texts[English][0]+"\n"+texts[Chinese][0], "\n") {
		name, _, ok := strings.Cut(text, ": ")
		en, zh := line(texts[English][0], name), line(texts[Chinese][0], name)
		if ok && text[0] != '#' && (en == "" || zh == "" || strings.Count(en, "%s") != strings.Count(zh, "%s")) {
			t.Errorf("%s: %q and %q", name, en, zh)
		}
	}
	for _, r := range history.All() {
		if English.Say(string(r)) == "" {
			t.Errorf("%s is not explained", r)
		}
	}
}

func TestLanguagesAreReadFromLocales(t *testing.T) {
	for s, want := range map[string]Lang{
		"en": English, "zh": Chinese, "zh_CN.UTF-8": Chinese, "zh-TW": Chinese, "ZH": Chinese, "en_GB": English, "zh.UTF-8": Chinese,
	} {
		if got, ok := ParseLang(s); got != want || !ok {
			t.Errorf("%q: %v %v", s, got, ok)
		}
	}
	for _, s := range []string{"", "C", "POSIX", "de_DE.UTF-8", "zhuang", "english"} {
		if got, ok := ParseLang(s); got != English || ok {
			t.Errorf("%q: %v %v", s, got, ok)
		}
	}
}
