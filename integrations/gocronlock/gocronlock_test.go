package gocronlock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/integrations/gocronlock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/memlock"
)

func open(t *testing.T, s *memlock.Store) *fencelock.Client {
	c := testclient.New(t, s, nil)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestDurationJobRunsOnceInEachPeriod starts three machines a third of a period apart: their ticks
// never meet. Each period has one run.
func TestDurationJobRunsOnceInEachPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const period = time.Minute
		store := memlock.New()
		var runs []time.Time
		var mu sync.Mutex
		for range 3 {
			c := testclient.New(t, store, nil)
			s, err := gocron.NewScheduler(gocron.WithDistributedLocker(gocronlock.NewLocker(c, period)))
			steps.Must(t, err)
			report := gocron.NewTask(func() {
				mu.Lock()
				defer mu.Unlock()
				runs = append(runs, time.Now())
			})
			steps.Must(t, steps.ErrOf(s.NewJob(gocron.DurationJob(period), report, gocron.WithName("report"))))
			s.Start()
			defer c.Close()
			defer s.Shutdown()
			time.Sleep(period / 3)
		}
		begun := time.Now()
		time.Sleep(100 * period)
		mu.Lock()
		defer mu.Unlock()
		n := 0
		for i, at := range runs {
			if i > 0 && at.Sub(runs[i-1]) < period-period/10 {
				t.Errorf("the job ran at %v and again %v later; want at most once in %v", runs[i-1], at.Sub(runs[i-1]), period)
			}
			if at.After(begun) {
				n++
			}
		}
		if n < 99 || n > 101 {
			t.Errorf("the job ran %d times in 100 periods", n)
		}
	})
}

// Two machines run a job on the first and on the last day of each month, for two years. The Locker has the period of
// the shortest month, or, as a user wrote it who counted on the calendar, that of the longest.
func TestMonthlyJobRunsOnceAMonth(t *testing.T) {
	for name, day := range map[string]int{"first day": 1, "last day": -1} {
		for _, period := range []time.Duration{28 * 24 * time.Hour, 31 * 24 * time.Hour} {
			t.Run(name+" "+period.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { monthly(t, day, period) })
			})
		}
	}
}

func monthly(t *testing.T, day int, period time.Duration) {
	store := memlock.New()
	var mu sync.Mutex
	runs := map[string]int{}
	for i := range 2 {
		time.Sleep(time.Duration(i) * 11 * time.Hour)
		s, err := gocron.NewScheduler(gocron.WithLocation(time.UTC),
			gocron.WithDistributedLocker(gocronlock.NewLocker(open(t, store), period)))
		steps.Must(t, err)
		_, err = s.NewJob(gocron.MonthlyJob(1, gocron.NewDaysOfTheMonth(day), gocron.NewAtTimes(gocron.NewAtTime(3, 0, 0))),
			gocron.NewTask(func() {
				mu.Lock()
				defer mu.Unlock()
				runs[time.Now().UTC().Format("2006-01")]++
			}), gocron.WithName("report"))
		steps.Must(t, err)
		s.Start()
		defer s.Shutdown()
	}
	time.Sleep(2 * 366 * 24 * time.Hour)
	mu.Lock()
	defer mu.Unlock()
	for month := time.Date(2000, time.February, 1, 0, 0, 0, 0, time.UTC); month.Year() < 2002; month = month.AddDate(0, 1, 0) {
		if n := runs[month.Format("2006-01")]; n != 1 {
			t.Errorf("in %s it ran %d times", month.Format("January 2006"), n)
		}
	}
}

func TestLockIsGivenBackThoughItsContextHasEnded(t *testing.T) {
	store := memlock.New()
	locker := gocronlock.NewLocker(open(t, store), 0)
	ctx, cancel := context.WithCancel(t.Context())
	lock, err := locker.Lock(ctx, "report")
	steps.Must(t, err)
	if _, err := gocronlock.NewLocker(open(t, store), 0).Lock(ctx, "report"); !errors.Is(err, fencelock.ErrNotAcquired) {
		t.Errorf("a second one got %v", err)
	}
	cancel()
	steps.OK(t, lock.Unlock(ctx))
	for l, err := range open(t, store).Lines(t.Context(), "") {
		t.Errorf("something is left: %v %v", l, err)
	}
}

func TestOneMachineLeadsAndTheNextFollows(t *testing.T) {
	store := memlock.New()
	type candidate struct {
		*gocronlock.Elector
		stop context.CancelFunc
	}
	var all []candidate
	for range 3 {
		ctx, stop := context.WithCancel(t.Context())
		all = append(all, candidate{gocronlock.NewElector(ctx, open(t, store), "scheduler"), stop})
	}
	leader := func() int {
		leads := -1
		testserver.Eventually(t, time.Minute, "one leads", func() bool {
			leads = slices.IndexFunc(all, func(c candidate) bool { return c.IsLeader(t.Context()) == nil })
			return leads >= 0
		})
		return leads
	}
	seen := map[int]bool{}
	for range all {
		i := leader()
		if seen[i] {
			t.Fatalf("%d leads again after it has stepped down", i)
		}
		seen[i] = true
		n := 0
		for _, c := range all {
			if err := c.IsLeader(t.Context()); err == nil {
				n++
			} else if !errors.Is(err, gocronlock.ErrNotLeader) {
				t.Error(err)
			}
		}
		steps.Same(t, "how many lead", n, 1)
		all[i].stop()
		<-all[i].Done()
	}
}

// A leader that is told so must hold the lock at that moment.
func TestLeaderThatLostItsLockSaysSo(t *testing.T) {
	store := memlock.New()
	e := gocronlock.NewElector(t.Context(), open(t, store), "scheduler")
	testserver.Eventually(t, time.Minute, "it leads", func() bool { return e.IsLeader(t.Context()) == nil })
	c := open(t, store)
	line, err := c.Line(t.Context(), "scheduler")
	if err != nil || len(line.Claims) != 1 {
		t.Fatal(line, err)
	}
	rival := make(chan *fencelock.Lease, 1)
	go func() {
		l, err := open(t, store).Lock(t.Context(), "scheduler")
		if err == nil {
			rival <- l
		}
	}()
	testserver.Eventually(t, time.Minute, "the rival waits", func() bool {
		line, _ = c.Line(t.Context(), "scheduler")
		return len(line.Claims) == 2
	})
	if err := c.Break(t.Context(), "scheduler", fence.Token(line.Claims[0].Token), fencelock.Break{Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	<-rival
	testserver.Eventually(t, time.Minute, "it says that it does not lead", func() bool { return e.IsLeader(t.Context()) != nil })
}

func TestSlotIsTheTickThatNowIsFor(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	steps.Must(t, err)
	for _, c := range []struct {
		now    string
		period time.Duration
		want   string
	}{
		{"2026-11-20T09:59:58Z", time.Hour, "2026-11-20T10:00:00Z"},
		{"2026-11-20T10:00:02Z", time.Hour, "2026-11-20T10:00:00Z"},
		{"2026-10-25T04:59:58Z", 6 * time.Hour, "2026-10-25T05:00:00Z"}, // six o'clock, after the clock went back
	} {
		now, err := time.Parse(time.RFC3339, c.now)
		steps.Must(t, err)
		if got := gocronlock.Slot(now.In(zone), c.period).UTC().Format(time.RFC3339); got != c.want {
			t.Errorf("%s, each %v: %s, want %s", c.now, c.period, got, c.want)
		}
	}
}
