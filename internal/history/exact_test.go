package history

import (
	"fmt"
	"testing"
	"time"
)

// exact are the limits of an exact history.
var exact = func() Options {
	o := limits
	o.Exact = true
	return o
}()

const stopped = `
		0s enter a
		1s believe a
		2s pause a
		3s enter b
		4s believe b
		5s release b
		5s left b
		6s resume a
		7s believe a
		8s release a
		8s left a`

var exactHistories = []struct {
	name  string
	o     Options
	want  int
	story string
}{
	{"doubted", exact, 0, `
			0s enter a
			1s believe a
			2s doubt a
			3s enter b
			4s believe b
			5s release b
			5s left b
			6s loss a`},
	{"known", exact, 1, `
			0s enter a
			1s believe a
			3s enter b
			4s believe b
			5s release b
			5s left b
			6s loss a`},
	{"doubted, and then it looked", exact, 1, `
			0s enter a
			1s believe a
			2s doubt a
			3s enter b
			4s believe b
			4500ms believe a
			5s release b
			5s left b
			6s loss a`},
	{"doubted, and then stopped: a stop takes nothing back", exact, 0, `
			0s enter a
			1s believe a
			2s doubt a
			3s pause a
			4s enter b
			5s believe b`},
	{"known, and then stopped", exact, 1, `
			0s enter a
			1s believe a
			3s pause a
			4s enter b
			5s believe b`},
	{"doubted permits", exact, 0, `
			0s enter a w2/3
			1s believe a w2/3
			2s doubt a
			3s enter b w2/3
			4s believe b w2/3
			5s release b
			6s loss a`},
	// Another is granted and has released by the time that a stopped one goes on, looks, and
	// says that it holds the lock: it held it all along.
	{"stopped, and then it looked", exact, 1, stopped},
	{"without Exact a stop exempts", limits, 0, stopped},
	// Between the note that a process is stopped and its stop it may still be granted, and look.
	{"granted while it is being stopped", exact, 1, `
			0s enter a
			1s believe a
			2s enter b
			3s pause b
			4s believe b
			5s release a
			5s left a
			6s resume b
			7s loss b`},
}

// Each case differs by one thing from its counterpart: what the option or the event is
// for. If it is not honoured, one of the two fails.
func TestExactHistories(t *testing.T) {
	for _, c := range exactHistories {
		vs := check(t, c.story, c.o)
		if len(vs) != c.want || c.want == 1 && vs[0].Rule != Exclusion {
			t.Errorf("%s: want %d breaches of %s: %v", c.name, c.want, Exclusion, vs)
		}
	}
}

// While the store is down nobody gets the lock; after it is back there is a lease's time.
func TestNoProgressIsAskedForInAnOutage(t *testing.T) {
	const text = `
		0s enter a
		1s believe a
		2s enter b
		3s crash a
		30s look
		31s believe b`
	const tooLate = `
		0s enter a
		1s believe a
		2s enter b
		3s crash a
		32s look
		45s believe b`
	out := limits
	out.Outages = []Span{{From: 8 * time.Second, To: 20 * time.Second}}
	before := limits
	before.Outages = []Span{{From: 0, To: 2500 * time.Millisecond}} // over before anything happened
	for _, c := range []struct {
		name, text string
		o          Options
		want       int
	}{
		{"no outage", text, limits, 1},
		{"an outage within the wait", text, out, 0},
		{"an outage, and no progress after it", tooLate, out, 1},
		{"an outage that was over", text, before, 1},
	} {
		vs := check(t, c.text, c.o)
		if len(vs) != c.want || c.want == 1 && vs[0].Rule != Stuck {
			t.Errorf("%s: want %d breaches of %s: %v", c.name, c.want, Stuck, vs)
		}
	}
}

// The ends of an outage belong to it, and the last of several to end counts.
func TestAGapMayTouchAnOutage(t *testing.T) {
	const text = `
		0s enter a
		1s believe a
		2s enter b
		3s release a
		3s left a
		14s believe b`
	at := func(from, to time.Duration) Span {
		return Span{From: from * time.Millisecond, To: to * time.Millisecond}
	}
	of := func(key string, s Span) Span { s.Key = key; return s }
	for _, c := range []struct {
		name string
		out  []Span
		want int
	}{
		{"it ends as the gap begins", []Span{at(0, 3000)}, 0},
		{"it ends before the gap begins", []Span{at(0, 2999)}, 1},
		{"it begins when the wake-up is due", []Span{at(5000, 6000)}, 0},
		{"it begins when the wake-up is overdue", []Span{at(5001, 6000)}, 1},
		{"a short one is over before a long one", []Span{at(2000, 8000), at(2500, 3000)}, 0},
		{"it is an outage of this key", []Span{of("k", at(0, 3000))}, 0},
		{"it is an outage of another key", []Span{of("other", at(0, 3000))}, 1},
		{"it is an outage of another key, and then of this one", []Span{of("other", at(0, 3000)), of("k", at(0, 3000))}, 0},
	} {
		o := limits
		o.Outages = c.out
		if vs := check(t, text, o); len(vs) != c.want {
			t.Errorf("%s: want %d breaches: %v", c.name, c.want, vs)
		}
	}
	late := limits
	late.Outages = []Span{at(2000, 8000), at(2500, 3000)}
	const never = `
		0s enter a
		1s believe a
		2s enter b
		3s release a
		3s left a
		%v look`
	for look, want := range map[time.Duration]int{19 * time.Second: 0, 20 * time.Second: 1} {
		if vs := check(t, fmt.Sprintf(never, look), late); len(vs) != want {
			t.Errorf("%v, 8s being the end of the outage: want %d breaches: %v", look, want, vs)
		}
	}
}

// Where no wake-up is promised, a lease's time begins with the last release, when the
// waiter comes, or when the store is back, whichever is the last.
func TestALeasesTimeWithoutAPromiseOfAWakeUp(t *testing.T) {
	for _, c := range []struct {
		name, text string
		due        time.Duration
	}{
		{"since the waiter came", `
			0s enter x
			1s loss x
			1s enter a
			2s believe a
			5s release a
			5s left a
			11s enter b`, 22 * time.Second},
		{"since the last release", `
			0s enter x
			1s loss x
			1s enter a
			2s believe a
			2s enter b
			11s release a
			11s left a`, 22 * time.Second},
		{"since the store is back, which was down when the waiter came", `
			5s enter b`, 17 * time.Second},
	} {
		o := limits
		o.Wake = 0
		o.Outages = []Span{{From: 4 * time.Second, To: 6 * time.Second}}
		if vs := check(t, fmt.Sprintf("%s\n%v look", c.text, c.due), o); len(vs) != 0 {
			t.Errorf("%s: late before %v: %v", c.name, c.due, vs)
		}
		late := fmt.Sprintf("%s\n%v look", c.text, c.due+time.Millisecond)
		if vs := check(t, late, o); len(vs) != 1 || vs[0].Rule != Stuck || vs[0].At != c.due {
			t.Errorf("%s: want one breach of %s at %v: %v", c.name, Stuck, c.due, vs)
		}
	}
}

// A waiter gave up long ago; the key has been granted since. A moment without a holder is
// not held against it a lease later, where no wake-up is promised.
func TestAnOldLossIsNoReasonForANewGap(t *testing.T) {
	const text = `
		0s enter x
		1s loss x
		2s enter a
		11500ms believe a
		11800ms enter b
		11900ms release a
		11900ms left a
		12100ms believe b
		13s release b
		13s left b`
	asked := limits
	asked.Wake = 0
	if vs := check(t, text, asked); len(vs) != 0 {
		t.Errorf("a gap of 200ms is flagged: %v", vs)
	}
}
