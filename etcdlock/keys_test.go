package etcdlock

import (
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

func FuzzEscape(f *testing.F) {
	for _, key := range []string{"", "a", "a/b", "%", "%2F", "\x00", "\xff", "ä", "a b", "~", "\x7f"} {
		f.Add(key, "a")
		f.Add("a", key)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if back, ok := letters.Unescape(letters.Escape(a)); !ok || back != a {
			t.Errorf("%q comes back as %q, %v", a, back, ok)
		}
		if strings.ContainsAny(letters.Escape(a), "/ \x00") {
			t.Errorf("%q is escaped as %q", a, letters.Escape(a))
		}
		if strings.HasPrefix(letters.Escape(a), letters.Escape(b)) != strings.HasPrefix(a, b) {
			t.Errorf("%q and %q are escaped as %q and %q: one begins with the other on one side only", a, b, letters.Escape(a), letters.Escape(b))
		}
	})
}

func TestWhatIsNotOursIsNotRead(t *testing.T) {
	b := New(nil, nil)
	for _, name := range []string{"fencelock/", "fencelock/a", "fencelock/a/", "fencelock/%/w1", "fencelock/%2/w1", "fencelock/%zz/w1"} {
		if key, _, _, ok := b.split(name); ok {
			t.Errorf("the name %q is read as the key %q", name, key)
		}
	}
	if key, class, id, ok := b.split("fencelock/a%2Fb/w1/2"); !ok || key != "a/b" || class != classWriter || id != "1/2" {
		t.Errorf("got %q %c %q %v", key, class, id, ok)
	}
}

// A machine that slept has a wall clock that went on and a monotonic one that did not;
// a wall clock that was set back says nothing.
func TestAgeIsTheLongerOfBothClocks(t *testing.T) {
	now := time.Now()
	if d := age(now, now.Add(time.Second)); d != time.Second {
		t.Errorf("a second is %v", d)
	}
	slept := now.Add(time.Minute).Round(0) // no monotonic reading: only the wall is compared
	if d := age(now, slept); d < time.Minute-time.Millisecond {
		t.Errorf("a minute of sleep is %v", d)
	}
	if d := age(now.Round(0), now.Add(-time.Hour).Round(0)); d != -time.Hour {
		t.Errorf("an hour back is %v", d)
	}
}

func TestLeasesAreWholeSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 2, time.Second: 2, 2 * time.Second: 2, 2*time.Second + 1: 3, maxTTL: 366 * 24 * 3600} {
		if got := seconds(d); got != want {
			t.Errorf("%v takes a lease of %d seconds; want %d", d, got, want)
		}
	}
}

func TestSpansOfNeighboursDoNotMeet(t *testing.T) {
	if tokenOf(7)+65535-1 >= tokenOf(8) || revisionOf(tokenOf(7)+65534) != 7 {
		t.Error("the span of a revision reaches into the next")
	}
}

// The server ends leases late: a claim that is still there may be one that its client
// has stopped to believe in.
func TestAnOverdueClaimIsNotGranted(t *testing.T) {
	b := New(nil, nil)
	l := &lease{id: 7, ttl: time.Minute, sent: time.Now()}
	b.leases.byID[clientv3.LeaseID(7)] = l
	s := &standing{own: &keyValue{Lease: 7}}
	if err := b.lasts(s); err != nil {
		t.Errorf("a young lease: %v", err)
	}
	l.sent = time.Now().Add(-time.Minute)
	if err := b.lasts(s); err != errOverdue {
		t.Errorf("a lease that is over by our count: %v; want %v", err, errOverdue)
	}
	s.own.Lease = 8
	if err := b.lasts(s); err != nil {
		t.Errorf("a lease of which nothing is known here: %v", err)
	}
}

// Claims that nobody asks for any more keep their names for a while, but not without a bound;
// those that somebody asks for keep theirs.
func TestIdleNamesAreBounded(t *testing.T) {
	var s slots
	s.init()
	claim := func(n int) (*driver.Claim, place) {
		c := &driver.Claim{Key: "k", ID: strconv.Itoa(n), Capacity: driver.RW, Weight: driver.RW}
		return c, place{c.Key, c.ID}
	}
	asked, at := claim(-1)
	name := s.take("k/", asked)
	s.doubt(at, time.Hour)
	if again := s.take("k/", asked); again != name {
		t.Errorf("an Enter that is repeated has the name %q, and had %q", again, name)
	}
	for n := range mostIdle + 10 {
		c, p := claim(n)
		// A line each: to find a free name is no matter here.
		s.take(lineKeys(c.ID+"/"), c)
		s.keep(p, time.Hour)
	}
	if len(s.taken) > mostIdle+1 || len(s.names) != len(s.taken) {
		t.Errorf("%d names of %d claims are kept; want %d at most", len(s.taken), len(s.names), mostIdle+1)
	}
	if s.idle != len(s.taken)-1 {
		t.Errorf("%d names are counted as idle, of %d; one is not", s.idle, len(s.taken))
	}
	if s.name(at) != name {
		t.Errorf("a claim that somebody asks for is called %q; it was %q", s.name(at), name)
	}
	s.gone(at, time.Hour)
	if s.name(at) != name {
		t.Error("a claim that may still arrive has lost its name")
	}
	s.free(at)
	if s.name(at) != "" {
		t.Error("a claim that has left keeps its name")
	}
}

// A delete that was sent and not answered may still arrive. It is for one name, and ends
// whoever has that.
func TestNoNameIsGivenAgainThatMayStillBeDeleted(t *testing.T) {
	first := &driver.Claim{Key: "k", ID: "1", Capacity: driver.RW, Weight: driver.RW}
	next := &driver.Claim{Key: "k", ID: "2", Capacity: driver.RW, Weight: driver.RW}
	p := place{first.Key, first.ID}
	for what, after := range map[string]func(s *slots){
		"it has left":                 func(s *slots) { s.free(p) },
		"it is not in line":           func(s *slots) { s.gone(p, time.Hour) },
		"nobody asked for a while":    func(s *slots) { s.keep(p, -time.Second) },
		"something else has its name": func(s *slots) { s.collided(p) },
	} {
		for _, answered := range []bool{false, true} {
			var s slots
			s.init()
			name := s.take("k/", first)
			s.settled(p)
			if sent := s.parting(p); sent != name {
				t.Fatalf("%q is to be deleted; want %q", sent, name)
			}
			if answered {
				s.parted(name)
			}
			after(&s)
			again := s.take("k/", next) == name
			if want := answered && what != "something else has its name"; again != want || len(s.names) != len(s.taken) {
				t.Errorf("%s, answered: %v: the next one has its name: %v", what, answered, again)
			}
		}
	}
	for what, before := range map[string]func(s *slots){
		"an Enter of it may arrive": func(s *slots) { s.doubt(p, time.Hour); s.take("k/", first) },
		"it lingers":                func(s *slots) { s.keep(p, time.Hour) },
		"it is not known":           func(s *slots) { s.free(p) },
		"an Enter of it is sent":    func(s *slots) { s.take("k/", first) },
	} {
		var s slots
		s.init()
		s.take("k/", first)
		s.settled(p)
		before(&s)
		if name := s.parting(p); name != "" {
			t.Errorf("%s: %q is deleted unseen", what, name)
		}
	}
}
