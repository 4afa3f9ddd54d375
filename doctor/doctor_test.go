package doctor_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/doctor"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/health"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/memlock"
)

// patient is a store that can be ill.
type patient struct {
	driver.Backend
	found    health.Result
	examined error
	hangs    bool
	took     func(n int) time.Duration // each renewal, from 1
	renewed  func(n int) error
	entered  error
	enters   func(n int) (before, after time.Duration) // how long Enter takes, from 1
	longest  time.Duration
	rate     float64 // of its clock; 0 for that of the test
	ahead    time.Duration

	begun  time.Time
	n, ins int
}

func (p *patient) Examine(ctx context.Context, _ time.Duration) (health.Result, error) {
	if p.hangs {
		<-ctx.Done()
		return health.Result{}, ctx.Err()
	}
	return p.found, p.examined
}

func (p *patient) Info() driver.Info {
	info := p.Backend.Info()
	info.MaxTTL = cmp.Or(p.longest, info.MaxTTL)
	return info
}

func (p *patient) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if p.hangs {
		<-ctx.Done()
		return driver.Ticket{}, ctx.Err()
	}
	p.ins++
	before, after := time.Millisecond, time.Duration(0)
	if p.enters != nil {
		before, after = p.enters(p.ins)
	}
	time.Sleep(before)      // real time: how long a step of a store takes
	defer time.Sleep(after) // real time: the same
	if p.entered != nil {
		return driver.Ticket{}, p.entered
	}
	return p.Backend.Enter(ctx, c)
}

func (p *patient) Renew(ctx context.Context, ts []driver.Ticket) []error {
	p.n++
	if p.took != nil {
		time.Sleep(p.took(p.n)) // real time: how long a step of a store takes
	}
	if p.renewed != nil {
		if err := p.renewed(p.n); err != nil {
			return []error{err}
		}
	}
	return p.Backend.Renew(ctx, ts)
}

func (p *patient) Line(ctx context.Context, key string) (driver.Line, error) {
	l, err := p.Backend.Line(ctx, key)
	for i := range l.Claims {
		since := &l.Claims[i].Since
		if p.rate > 0 {
			*since = p.begun.Add(time.Duration(p.rate * float64(since.Sub(p.begun))))
		}
		*since = since.Add(p.ahead)
	}
	return l, err
}

// check examines a patient in virtual time.
func check(t *testing.T, p *patient, o *doctor.Options, judge func(r doctor.Report, err error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p.Backend, p.begun = memlock.New(), time.Now()
		p.found.ServerTime = true
		judge(doctor.Check(t.Context(), p, o))
		for l := range p.Backend.Lines(t.Context(), "") {
			t.Errorf("a lock stays: %+v", l)
		}
	})
}

func codes(r doctor.Report) string {
	var all []string
	for _, f := range r.Findings {
		all = append(all, f.Severity.String()+" "+f.Code)
		if f.Setting == "" || f.Value == "" || f.Why == "" || f.Remedy == "" {
			all = append(all, "(incomplete)")
		}
	}
	return strings.Join(all, ", ")
}

func TestFindingsOfWhatIsMeasured(t *testing.T) {
	slow := func(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }
	for name, c := range map[string]struct {
		patient patient
		options doctor.Options
		want    string
	}{
		"healthy":             {},
		"a tail below":        {patient: patient{took: slow(99 * time.Millisecond)}, options: doctor.Options{TTL: 300 * time.Millisecond}},
		"a tail above":        {patient: patient{took: slow(101 * time.Millisecond)}, options: doctor.Options{TTL: 300 * time.Millisecond}, want: "warning request-tail"},
		"a failover below":    {options: doctor.Options{Failover: 20 * time.Second}},
		"a failover above":    {options: doctor.Options{Failover: 21 * time.Second}, want: "warning failover-time"},
		"one request fails":   {patient: patient{renewed: failing(5)}, want: "warning requests-failed"},
		"the lock is lost":    {patient: patient{renewed: func(int) error { return driver.GoneError{} }}, want: "error lock-lost"},
		"locks are refused":   {patient: patient{entered: errors.New("no")}, want: "error lock-refused"},
		"a clock is 0.9 % up": {patient: patient{rate: 1.009}},
		"a clock is 1.3 % up": {patient: patient{rate: 1.013}, want: "warning clock-rate"},
		"a clock is slow":     {patient: patient{rate: 0.987}, want: "warning clock-rate"},
		"a clock is ahead":    {patient: patient{ahead: 2 * time.Second}, want: "note clock-offset"},
		"a clock is behind":   {patient: patient{ahead: -2 * time.Second}, want: "note clock-offset"},
		"no settings":         {patient: patient{examined: errors.New("no")}, want: "note not-examined"},
		"the worst is first": {patient: patient{ahead: 2 * time.Second, rate: 1.1, renewed: func(int) error { return nil }, found: health.Result{Findings: []health.Finding{
			{Severity: health.Note, Code: "a", Setting: "s", Value: "v", Why: "w", Remedy: "r"},
			{Severity: health.Error, Code: "b", Setting: "s", Value: "v", Why: "w", Remedy: "r"},
		}}}, want: "error b, warning clock-rate, note a, note clock-offset"},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, &c.patient, &c.options, func(r doctor.Report, err error) {
				if err != nil || codes(r) != c.want {
					t.Errorf("it finds %q, %v; want %q", codes(r), err, c.want)
				}
			})
		})
	}
}

// failing fails one renewal.
func failing(which int) func(n int) error {
	return func(n int) error {
		if n == which {
			return errors.New("no answer")
		}
		return nil
	}
}

// A store of which nothing can be learned, and one that hangs, which is given up.
func TestStoreOfWhichNothingIsKnownIsAnError(t *testing.T) {
	no := errors.New("nobody is there")
	for want, p := range map[error]*patient{no: {examined: no, entered: no}, context.DeadlineExceeded: {hangs: true}} {
		check(t, p, nil, func(r doctor.Report, err error) {
			if !errors.Is(err, want) || time.Since(p.begun) > 20*time.Second {
				t.Errorf("after %v Check answers %+v, %v; want %v", time.Since(p.begun), r, err, want)
			}
		})
	}
}

func TestCheckEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b := memlock.New()
		steps.Is(t, "Check", steps.ErrOf(doctor.Check(ctx, b, nil)), context.DeadlineExceeded)
		for l := range b.Lines(t.Context(), "") {
			t.Errorf("a lock stays: %+v", l)
		}
	})
}

func TestBadOptionsAreRefused(t *testing.T) {
	for _, o := range []doctor.Options{{TTL: -1}, {Work: -1}, {Failover: -1}, {For: -1}, {Requests: 1}, {Requests: 1e7}} {
		if r, err := doctor.Check(t.Context(), memlock.New(), &o); err == nil {
			t.Errorf("%+v: Check answers %+v", o, r)
		}
	}
}

// One renewal of a thousand is slow: the tail has it, and so has the advice.
func TestQuantilesAreThoseOfTheRequests(t *testing.T) {
	p := &patient{took: func(n int) time.Duration {
		switch {
		case n == 700:
			return 800 * time.Millisecond
		case n%50 == 0:
			return 20 * time.Millisecond
		}
		return 3 * time.Millisecond
	}}
	check(t, p, &doctor.Options{Requests: 1000, For: 20 * time.Second}, func(r doctor.Report, err error) {
		want := doctor.Latency{N: 1000, P50: 3 * time.Millisecond, P99: 20 * time.Millisecond, P999: 20 * time.Millisecond}
		if err != nil || r.Requests != want {
			t.Errorf("requests: %+v, %v", r.Requests, err)
		}
	})
	p.n = 0
	check(t, p, &doctor.Options{Requests: 999, For: 20 * time.Second}, func(r doctor.Report, err error) {
		if err != nil || r.Requests.P999 != 800*time.Millisecond {
			t.Errorf("requests: %+v, %v", r.Requests, err)
		}
		// 1.5 × (2 × 0.8 s + 1 s) = 3.9 s
		steps.Same(t, "the least TTL", r.Advice.Least, 4*time.Second)
	})
}

func TestAdviceForTheTTL(t *testing.T) {
	tail := func(int) time.Duration { return 50 * time.Millisecond }
	failover := func(d time.Duration) health.Result { return health.Result{Failover: d} }
	for name, c := range map[string]struct {
		patient    patient
		options    doctor.Options
		least, ttl time.Duration
		says       string
	}{
		// 1.5 × (2 × 0.05 s + 1 s) = 1.65 s
		"nothing known":               {least: 2 * time.Second, ttl: 30 * time.Second, says: "default"},
		"short work":                  {options: doctor.Options{Work: 4 * time.Second}, least: 2 * time.Second, ttl: 6 * time.Second, says: "outlives work of 4s"},
		"work as long as a TTL":       {options: doctor.Options{Work: time.Minute}, least: 2 * time.Second, ttl: 30 * time.Second, says: "depends on renewals"},
		"the store's failover":        {patient: patient{found: failover(17 * time.Second)}, least: 28 * time.Second, ttl: 30 * time.Second, says: "a failover takes 17s"},
		"a store without long leases": {patient: patient{longest: 20 * time.Second, found: failover(30 * time.Second)}, least: 20 * time.Second, ttl: 20 * time.Second, says: "47s would be needed"},
		"a longer failover":           {patient: patient{found: failover(30 * time.Second)}, least: 47 * time.Second, ttl: 47 * time.Second, says: "a failover takes 30s"},
		"the failover of a user":      {patient: patient{found: failover(30 * time.Second)}, options: doctor.Options{TTL: time.Hour, Failover: time.Second, Work: time.Second}, least: 4 * time.Second, ttl: 4 * time.Second, says: "a failover takes 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			c.patient.took = tail
			check(t, &c.patient, &c.options, func(r doctor.Report, err error) {
				if err != nil || r.Advice.Least != c.least || r.Advice.TTL != c.ttl {
					t.Errorf("advice: %+v, %v; want at least %v, and %v", r.Advice, err, c.least, c.ttl)
				}
				if !slices.ContainsFunc(r.Advice.Why, func(s string) bool { return strings.Contains(s, c.says) }) {
					t.Errorf("it does not say %q: %q", c.says, r.Advice.Why)
				}
			})
		})
	}
}

// Whichever way of a request is slow, the rate that is true is within what is said of it.
func TestRateOfTheClockAllowsForTheRequests(t *testing.T) {
	for _, slow := range []int{1, 2} {
		p := &patient{enters: func(n int) (before, after time.Duration) {
			if n == slow {
				return 300 * time.Millisecond, 0
			}
			return 0, 300 * time.Millisecond
		}}
		check(t, p, nil, func(r doctor.Report, err error) {
			k := r.Clock
			if err != nil || k == nil || k.Rate-k.Error > 1 || k.Rate+k.Error < 1 || len(r.Findings) > 0 {
				t.Errorf("request %d: %+v, %v, %+v", slow, k, err, r.Findings)
			}
		})
	}
}

func TestClockIsMeasured(t *testing.T) {
	check(t, &patient{rate: 1.02, ahead: 500 * time.Millisecond}, nil, func(r doctor.Report, err error) {
		k := r.Clock
		if err != nil || k == nil {
			t.Fatalf("no clock: %v", err)
		}
		if k.Rate-k.Error > 1.02 || k.Rate+k.Error < 1.02 || k.Error > 0.002 {
			t.Errorf("the rate is %.4f ± %.4f", k.Rate, k.Error)
		}
		if off := (k.Offset - 500*time.Millisecond).Abs(); off > 5*time.Millisecond {
			t.Errorf("the clock is %v ahead", k.Offset)
		}
	})
	if r, err := doctor.Check(t.Context(), memlock.New(), &doctor.Options{For: time.Millisecond, Requests: 10}); err != nil || r.Clock != nil {
		t.Errorf("a store that does not tell its time: %+v, %v", r, err)
	}
}

// TestRaceHasOneWinner: in a store that excludes, one racer wins each round, and nothing stays in line.
func TestRaceHasOneWinner(t *testing.T) {
	b := memlock.New()
	o, err := doctor.Race(t.Context(), []driver.Backend{b}, 32, 50)
	if err != nil || !o.Excludes() || o.One != 50 || o.Most != 1 || o.Unanswered > 0 {
		t.Errorf("Race counted %+v, %v; want one winner in each of 50 rounds", o, err)
	}
	for line, err := range b.Lines(t.Context(), "") {
		t.Errorf("Race left %+v, %v in the store", line, err)
	}
}

// lawless is a store that grants as it likes, and does not answer a Leave.
type lawless struct {
	driver.Backend
	enters func(ctx context.Context, c driver.Claim) (driver.Ticket, error)
}

func (l *lawless) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	return l.enters(ctx, c)
}

func (l *lawless) Leave(context.Context, driver.Ticket, driver.Exit) error {
	return errors.New("no answer")
}

// TestRaceFindsAStoreThatDoesNotExclude: more winners than one, a token that comes again, nobody ever.
func TestRaceFindsAStoreThatDoesNotExclude(t *testing.T) {
	rising := func(n int64) int64 { return n }
	tests := map[string]struct {
		every int64 // it grants each so manieth claim
		token func(n int64) int64
		want  doctor.Outcome
	}{
		"all win":          {1, rising, doctor.Outcome{Racers: 8, Rounds: 4, Several: 4, Most: 8}},
		"two of eight win": {4, rising, doctor.Outcome{Racers: 8, Rounds: 4, Several: 4, Most: 2}},
		"a token does not rise": {8, func(n int64) int64 { return max(n, 16) },
			doctor.Outcome{Racers: 8, Rounds: 4, One: 4, Most: 1, NotRisen: 1}},
		"nobody wins": {1000, rising, doctor.Outcome{Racers: 8, Rounds: 4, None: 4}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var claims atomic.Int64
			b := &lawless{memlock.New(), func(_ context.Context, c driver.Claim) (driver.Ticket, error) {
				n := claims.Add(1)
				if n%test.every != 0 {
					return driver.Ticket{}, &driver.BusyError{}
				}
				return driver.Ticket{Claim: c, Token: test.token(n), Granted: true, Left: c.TTL}, nil
			}}
			o, err := doctor.Race(t.Context(), []driver.Backend{b}, 8, 4)
			if err != nil || o != test.want || o.Excludes() {
				t.Errorf("Race counted %+v, %v; want %+v, which does not exclude", o, err, test.want)
			}
		})
	}
}

// TestRaceWithoutAnswers: a store that is down excludes nobody and proves nothing.
func TestRaceWithoutAnswers(t *testing.T) {
	down := errors.New("connection refused")
	silent := &lawless{memlock.New(), func(context.Context, driver.Claim) (driver.Ticket, error) { return driver.Ticket{}, down }}
	o, err := doctor.Race(t.Context(), []driver.Backend{silent}, 4, 2)
	if err != nil || o.Unanswered != 8 || !errors.Is(o.Err, down) || o.None != 2 || o.Excludes() {
		t.Errorf("Race counted %+v, %v; want 8 requests without an answer", o, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	hung := &lawless{memlock.New(), func(ctx context.Context, _ driver.Claim) (driver.Ticket, error) {
		cancel()
		<-ctx.Done()
		return driver.Ticket{}, ctx.Err()
	}}
	steps.Is(t, "Race", steps.ErrOf(doctor.Race(ctx, []driver.Backend{hung}, 4, 2)), context.Canceled)
}

func TestRaceRefusesNumbers(t *testing.T) {
	for _, n := range [][2]int{{1, 1}, {1001, 1}, {2, 0}} {
		if _, err := doctor.Race(t.Context(), []driver.Backend{memlock.New()}, n[0], n[1]); err == nil {
			t.Errorf("Race accepted %d racers and %d rounds", n[0], n[1])
		}
	}
	if _, err := doctor.Race(t.Context(), nil, 2, 1); err == nil {
		t.Error("Race accepted no backends")
	}
}
