package lab

import (
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/redis/go-redis/v9/logging"
)

func TestMain(m *testing.M) {
	logging.Disable() // a node that cannot be reached is part of the play
	m.Run()
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
