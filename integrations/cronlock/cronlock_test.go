package cronlock_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/integrations/cronlock"
	"github.com/fencelock/fencelock/internal/slot"
	"github.com/fencelock/fencelock/internal/testclient"
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

// delayed is cron.DelayIfStillRunning, which has a mutex: in virtual time no goroutine may wait for one.
func delayed(job cron.Job) cron.Job {
	turn := make(chan struct{}, 1)
	return cron.FuncJob(func() {
		turn <- struct{}{}
		defer func() { <-turn }()
		job.Run()
	})
}

// machines starts so many machines that run job each second, and ends them.
func machines(t *testing.T, n int, log *slog.Logger, job cronlock.Func) {
	t.Helper()
	store := memlock.New()
	for range n {
		c := cron.New(cron.WithChain(delayed))
		o := &cronlock.Options{Log: log}
		steps.Must(t, steps.ErrOf(cronlock.Schedule(c, open(t, store), everySecond(t), "report", job, o)))
		c.Start()
		t.Cleanup(func() { <-c.Stop().Done() })
	}
}

func TestEachTickRunsOnOneMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tokens []fence.Token // by one machine at a time
		machines(t, 3, quiet, func(_ context.Context, l *fencelock.Lease) error {
			tokens = append(tokens, l.Token())
			return nil
		})
		time.Sleep(10*time.Second + time.Second/2)
		synctest.Wait()
		steps.Same(t, "runs in ten ticks", len(tokens), 10)
		for i := range tokens[1:] {
			steps.Rises(t, tokens[i], tokens[i+1])
		}
	})
}

// A tick that failed on one machine is open for the next one that waits for it.
func TestTickThatFailedIsRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slots []time.Time
		began := time.Now()
		machines(t, 2, quiet, func(ctx context.Context, _ *fencelock.Lease) error {
			slots = append(slots, cronlock.Slot(ctx))
			time.Sleep(time.Second / 4) // the other machine waits
			if len(slots) == 1 {
				return errors.New("out of paper")
			}
			return nil
		})
		time.Sleep(time.Second + time.Second/2)
		synctest.Wait()
		tick := began.Truncate(time.Second).Add(time.Second)
		if !slices.EqualFunc(slots, []time.Time{tick, tick}, time.Time.Equal) {
			t.Errorf("the tick of %v failed once, and the runs were for %v", tick, slots)
		}
	})
}

// A run that cron delays takes the tick after its own, and the log says so.
func TestTickThatADelayedRunEatsIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		runs := 0
		machines(t, 1, slog.New(slog.NewTextHandler(&log, nil)), func(context.Context, *fencelock.Lease) error {
			if runs++; runs == 1 {
				time.Sleep(4 * time.Second)
			}
			return nil
		})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !strings.Contains(log.String(), "missed a tick") {
			t.Errorf("the log does not say that a tick was missed: %s", log.String())
		}
	})
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

var quiet = slog.New(slog.DiscardHandler)
