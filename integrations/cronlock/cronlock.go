// Package cronlock lets robfig/cron on several machines share its jobs: each tick is
// run by one of them.
package cronlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/slot"
)

// Func is a job. Its ctx ends when the lock is lost, with the cause. Slot(ctx) is the
// tick that it runs for.
type Func = func(ctx context.Context, l *fencelock.Lease) error

type slotKey struct{}

// Slot returns the tick that a Func runs for, in UTC, or the zero time in any other
// ctx. It is the same for a run that is repeated, however late, and on all machines.
func Slot(ctx context.Context) time.Time {
	slot, _ := ctx.Value(slotKey{}).(time.Time)
	return slot
}

// Options configure how a job is run. Nil and the zero value are ready for use.
type Options struct {
	// Context is the ctx of all runs; context.Background() if nil.
	Context context.Context
	// Log logs runs that failed; slog.Default() if nil.
	Log *slog.Logger
	// Lock are options of Client.Once.
	Lock []fencelock.Option
}

// ErrRelative says that the times of a schedule depend on when the program was started,
// so that two machines do not have the same ticks.
var ErrRelative = errors.New(
	"the times of @every depend on when the program was started; use a spec with fields, or Wrap")

// AddFunc adds a job that runs at most once successfully per tick of spec, over all
// machines, however far their clocks are apart. key names the job, and is the same on
// all machines, as are spec and the time zone of c. If the machine that runs it dies,
// another one that waits for the same tick runs it again, with a larger token.
//
// On a day when the clock goes back, cron reaches "0 2 * * *" twice. Both are one tick, unless the
// ticks are as close together as what the clock repeats, such as those of each hour.
//
// Runs of a key never overlap: a tick waits for the run before it. So c needs no DelayIfStillRunning, with
// which a run that is late takes the tick after its own. That is logged.
//
// It needs a backend that keeps marks. On another backend each tick fails with the error
// of fencelock.Client.Once.
func AddFunc(c *cron.Cron, client *fencelock.Client, spec, key string, f Func, o *Options) (cron.EntryID, error) {
	schedule, err := cron.ParseStandard(spec)
	if err != nil {
		return 0, err
	}
	return Schedule(c, client, schedule, key, f, o)
}

// Schedule is AddFunc for a schedule that has been parsed, with seconds for example.
func Schedule(
	c *cron.Cron, client *fencelock.Client, schedule cron.Schedule, key string, f Func, o *Options,
) (cron.EntryID, error) {
	if relative(schedule) {
		return 0, ErrRelative
	}
	s := o.settled()
	var last time.Time
	var mu sync.Mutex
	id := make(chan cron.EntryID, 1)
	entry := c.Schedule(schedule, cron.FuncJob(func() {
		me := <-id
		id <- me
		// cron notes the time that was scheduled before it answers this question. All
		// machines have the same, to the nanosecond.
		at := c.Entry(me).Prev
		if at.IsZero() {
			return // removed meanwhile
		}
		mu.Lock()
		late := at.Equal(last)
		last = at
		mu.Unlock()
		if late { // the newer tick has been taken, so an older one cannot run any more
			s.Log.Error("cron job missed a tick: leave DelayIfStillRunning out", "key", key, "before", at)
			return
		}
		at = tick(schedule, at)
		run := func(ctx context.Context, l *fencelock.Lease) error {
			return f(context.WithValue(ctx, slotKey{}, at), l)
		}
		if _, err := client.Once(s.Context, key, at, run, s.Lock...); err != nil {
			s.Log.Error("cron job failed", "key", key, "slot", at, "error", err)
		}
	}))
	id <- entry
	return entry, nil
}

// relative reports whether the next time of schedule depends on when it is asked.
func relative(schedule cron.Schedule) bool {
	now := time.Now()
	next := schedule.Next(now)
	return !next.IsZero() && !schedule.Next(now.Add(next.Sub(now)/2)).Equal(next)
}

// tick returns the slot of a time of schedule.
func tick(schedule cron.Schedule, at time.Time) time.Time {
	if spec, ok := schedule.(*cron.SpecSchedule); ok && spec.Location != time.Local { // CRON_TZ
		at = at.In(spec.Location)
	}
	return slot.Tick(at, schedule.Next(at)).UTC()
}

// Wrap returns a cron.JobWrapper for existing jobs. It skips a run that finds the key
// taken. The key stays taken for minHold after a run has begun, even if the run ends
// sooner. minHold must be longer than the clocks of the machines are apart, and shorter
// than the time between two runs. The job does not learn that its lock was lost.
//
//	c := cron.New(cron.WithChain(cronlock.Wrap(client, "reports", 30*time.Second, nil)))
func Wrap(client *fencelock.Client, key string, minHold time.Duration, o *Options) cron.JobWrapper {
	s := o.settled()
	opts := append([]fencelock.Option{fencelock.MinHold(minHold)}, s.Lock...)
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			ctx, cancel := context.WithTimeout(s.Context, max(minHold, time.Second))
			lease, err := client.TryLock(ctx, key, opts...)
			cancel()
			if errors.Is(err, fencelock.ErrNotAcquired) {
				return
			}
			if err != nil {
				s.Log.Error("cron job not run", "key", key, "error", err)
				return
			}
			defer func() {
				if err := lease.Release(s.Context); err != nil {
					s.Log.Error("cron job may have run twice", "key", key, "error", fmt.Errorf("its lock: %w", err))
				}
			}()
			job.Run()
		})
	}
}

func (o *Options) settled() Options {
	var s Options
	if o != nil {
		s = *o
	}
	if s.Context == nil {
		s.Context = context.Background()
	}
	if s.Log == nil {
		s.Log = slog.Default()
	}
	return s
}
