package cronlock_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/integrations/cronlock"
	"github.com/fencelock/fencelock/internal/slot"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/memlock"
)

func open(t *testing.T, s *memlock.Store) *fencelock.Client {
	c := testclient.New(t, s, nil)
	t.Cleanup(func() { c.Close() })
	return c
}

// everySecond is a schedule with a field for seconds.
func everySecond(t *testing.T) cron.Schedule {
	s, err := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse("* * * * * *")
	steps.Must(t, err)
	return s
}

func TestEachTickRunsOnOneMachine(t *testing.T) {
	store := memlock.New()
	var mu sync.Mutex
	var tokens []int64
	job := func(ctx context.Context, l *fencelock.Lease) error {
		mu.Lock()
		defer mu.Unlock()
		tokens = append(tokens, int64(l.Token()))
		return nil
	}
	var all []*cron.Cron
	begun := time.Now()
	for range 3 {
		c := cron.New()
		steps.Must(t, steps.ErrOf(cronlock.Schedule(c, open(t, store), everySecond(t), "report", job, nil)))
		c.Start()
		all = append(all, c)
	}
	testserver.Eventually(t, time.Minute, "three ticks have run", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(tokens) >= 3
	})
	for _, c := range all {
		<-c.Stop().Done()
	}
	ticks := int(time.Now().Unix() - begun.Unix())
	mu.Lock()
	defer mu.Unlock()
	// The machines begin and end at slightly different times.
	if len(tokens) < 3 || len(tokens) > ticks {
		t.Errorf("%d runs in %d ticks", len(tokens), ticks)
	}
	for i := range tokens[1:] {
		if tokens[i+1] <= tokens[i] {
			t.Errorf("tokens do not rise: %v", tokens)
		}
	}
}

// A tick that failed on one machine is open for the next one that waits for it.
func TestTickThatFailedIsRunAgain(t *testing.T) {
	store := memlock.New()
	slots, waits := make(chan time.Time, 100), make(chan struct{})
	var once atomic.Bool
	job := func(ctx context.Context, l *fencelock.Lease) error {
		slots <- cronlock.Slot(ctx)
		if once.CompareAndSwap(false, true) {
			<-waits
			return errors.New("out of paper")
		}
		return nil
	}
	var all []*cron.Cron
	for range 2 {
		c := cron.New()
		if _, err := cronlock.Schedule(c, open(t, store), everySecond(t), "report", job, &cronlock.Options{Log: quiet}); err != nil {
			t.Fatal(err)
		}
		c.Start()
		all = append(all, c)
	}
	first := <-slots
	testserver.Eventually(t, time.Minute, "the other machine waits", func() bool {
		line, err := store.Line(t.Context(), "report")
		return err == nil && len(line.Claims) > 1
	})
	close(waits)
	second := <-slots
	for _, c := range all {
		<-c.Stop().Done()
	}
	if age := time.Since(first); first.IsZero() || age < 0 || age > time.Minute || first.Nanosecond() != 0 || first.Location() != time.UTC {
		t.Errorf("the job ran for %v", first)
	}
	if !first.Equal(second) {
		t.Errorf("the tick of %v failed, and the next run was for %v", first, second)
	}
}

func TestRelativeSchedulesAreRefused(t *testing.T) {
	_, err := cronlock.AddFunc(cron.New(), open(t, memlock.New()), "@every 1h", "report", nil, nil)
	if !errors.Is(err, cronlock.ErrRelative) {
		t.Error(err)
	}
	every := cron.Every(time.Hour)
	for _, s := range []cron.Schedule{every, &every, &jittered{everySecond(t)}} {
		if _, err := cronlock.Schedule(cron.New(), open(t, memlock.New()), s, "report", nil, nil); !errors.Is(err, cronlock.ErrRelative) {
			t.Errorf("%T: %v", s, err)
		}
	}
	if _, err := cronlock.AddFunc(cron.New(), open(t, memlock.New()), "no spec", "report", nil, nil); err == nil {
		t.Error("a bad spec was taken")
	}
}

// jittered spreads the load of many programs.
type jittered struct{ cron.Schedule }

func (j *jittered) Next(t time.Time) time.Time {
	return j.Schedule.Next(t).Add(rand.N(time.Hour))
}

// A run that cron delays takes the tick after its own, and the log says so.
func TestTickThatADelayedRunEatsIsLogged(t *testing.T) {
	var log logged
	c := cron.New(cron.WithChain(cron.DelayIfStillRunning(cron.DiscardLogger)))
	begun, end := make(chan time.Time, 100), make(chan struct{})
	_, err := cronlock.Schedule(c, open(t, memlock.New()), everySecond(t), "report", func(ctx context.Context, _ *fencelock.Lease) error {
		begun <- cronlock.Slot(ctx)
		<-end
		return nil
	}, &cronlock.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	steps.Must(t, err)
	c.Start()
	defer func() { <-c.Stop().Done() }()
	first := <-begun
	testserver.Eventually(t, time.Minute, "three more ticks are due", func() bool { return time.Since(first) > 4*time.Second })
	close(end)
	testserver.Eventually(t, time.Minute, "the log says that a tick was missed", func() bool {
		return strings.Contains(log.String(), "missed a tick")
	})
}

type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// On a day when the clock goes back, cron reaches a time of a daily job twice. The ticks of a line
// have the slots that fencelock once --slot has for it.
func TestTicksHaveTheSlotsOfTheirLine(t *testing.T) {
	lines := map[string]time.Duration{
		"*/15 * * * *": 15 * time.Minute, "0 * * * *": time.Hour, "0 */2 * * *": 2 * time.Hour,
		"0 */6 * * *": 6 * time.Hour, "0 0 * * *": 24 * time.Hour,
	}
	again := 0
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/New_York", "America/Havana", "Australia/Lord_Howe"} {
		for line, d := range lines {
			schedule, err := cron.ParseStandard("CRON_TZ=" + zone + " " + line)
			steps.Must(t, err)
			last := time.Time{}
			end := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
			for at := schedule.Next(end.AddDate(-1, 0, 0)); at.Before(end); at = schedule.Next(at) {
				in := at.In(schedule.(*cron.SpecSchedule).Location)
				got := cronlock.Tick(schedule, at)
				if want := slot.Start(in, d); !got.Equal(want) {
					t.Fatalf("%s, %s: the slot of %v is %v; want %v", zone, line, in, got, want)
				}
				if got.Equal(last) {
					again++
				}
				last = got
			}
		}
	}
	if again == 0 {
		t.Error("no tick was reached twice")
	}
}

func TestWrappedJobIsSkippedWhereAnotherRunsIt(t *testing.T) {
	store := memlock.New()
	var runs atomic.Int32
	var jobs []cron.Job
	for range 4 {
		wrap := cronlock.Wrap(open(t, store), "report", time.Minute, nil)
		jobs = append(jobs, wrap(cron.FuncJob(func() { runs.Add(1) })))
	}
	for _, j := range jobs {
		j.Run() // one after the other: each is over before the next begins
	}
	if n := runs.Load(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))
