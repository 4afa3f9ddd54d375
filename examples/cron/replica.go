package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"
	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/integrations/cronlock"
	"github.com/fencelock/fencelock/integrations/gocronlock"
	"github.com/fencelock/fencelock/redislock"
)

// spec is each two seconds, in the form with seconds.
const spec = "*/2 * * * * *"

// replica runs the job with each tick until its input ends.
func replica(kind, name, addr string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	locks, err := fencelock.New(redislock.New(rdb, nil), &fencelock.Options{Owner: name, TTL: lease})
	if err != nil {
		return err
	}
	defer locks.Close()
	r := &runner{kind: kind, key: kind + "/report", behind: behind[name], rdb: rdb, locks: locks}

	switch kind {
	case "lock-alone":
		err = r.gocron(ctx, r.plain, gocron.WithDistributedLocker(gocronlock.NewLocker(locks, 0)))
	case "gocronlock":
		err = r.gocron(ctx, r.plain, gocron.WithDistributedLocker(gocronlock.NewLocker(locks, every)))
	case "gocron-once":
		err = r.gocron(ctx, r.once)
	case "cronlock":
		err = r.cron(ctx)
	default:
		err = fmt.Errorf("there is no kind called %q", kind)
	}
	return err
}

// runner runs the job of one replica.
type runner struct {
	kind, key string
	behind    time.Duration
	rdb       *redis.Client
	locks     *fencelock.Client
}

// gocron shares its jobs by what options say, or the task shares itself.
func (r *runner) gocron(
	ctx context.Context, task func(ctx context.Context) error, options ...gocron.SchedulerOption,
) error {
	s, err := gocron.NewScheduler(append(options, gocron.WithClock(late{clockwork.NewRealClock(), r.behind}))...)
	if err != nil {
		return err
	}
	if _, err := s.NewJob(gocron.CronJob(spec, true), gocron.NewTask(task), gocron.WithName(r.key)); err != nil {
		return err
	}
	s.Start()
	untilInputEnds()
	return s.Shutdown()
}

// plain is a job as gocron's users have it.
func (r *runner) plain(ctx context.Context) error { return r.report(ctx, r.slot(), nil) }

// once is a job that remembers which ticks are done.
func (r *runner) once(ctx context.Context) error {
	slot := r.slot()
	_, err := r.locks.Once(ctx, r.key, slot, func(ctx context.Context, l *fencelock.Lease) error {
		return r.report(ctx, slot, l)
	})
	return err
}

// slot is the tick that the replica's own clock has just reached. It is the same on all
// replicas, however far their clocks are apart.
func (r *runner) slot() time.Time { return gocronlock.Slot(time.Now().Add(-r.behind), every) }

// cron does the same with robfig/cron. Its clock is always the machine's; a late clock
// is one that begins the job late and calls it the same tick.
func (r *runner) cron(ctx context.Context) error {
	lag := func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			time.Sleep(r.behind)
			job.Run()
		})
	}
	c := cron.New(cron.WithSeconds(), cron.WithChain(lag))
	parser := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	schedule, err := parser.Parse(spec)
	if err != nil {
		return err
	}
	if _, err := cronlock.Schedule(c, r.locks, schedule, r.key, func(ctx context.Context, l *fencelock.Lease) error {
		return r.report(ctx, cronlock.Slot(ctx), l)
	}, &cronlock.Options{Context: ctx}); err != nil {
		return err
	}
	c.Start()
	untilInputEnds()
	<-c.Stop().Done()
	return nil
}

// report is the job. It says when it begins and when it is done. One of them is told to
// take so long that it can be killed in the middle.
func (r *runner) report(ctx context.Context, slot time.Time, l *fencelock.Lease) error {
	token := int64(0)
	if l != nil {
		token = int64(l.Token())
	}
	fmt.Println("begun", slot.Unix(), token)
	err := r.rdb.GetDel(ctx, stuck(r.kind)).Err()
	if err == nil {
		fmt.Println("stuck", slot.Unix(), token)
		select {} // until it is killed
	}
	if !errors.Is(err, redis.Nil) {
		return err
	}
	time.Sleep(work)
	fmt.Println("done", slot.Unix(), token)
	return nil
}

// stuck names what tells the next run to hang.
func stuck(kind string) string { return "stuck/" + kind }

// untilInputEnds says that all is set up, and returns when the story is over.
func untilInputEnds() {
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// late is a clock that is behind.
type late struct {
	clockwork.Clock
	by time.Duration
}

func (c late) Now() time.Time                  { return c.Clock.Now().Add(-c.by) }
func (c late) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c late) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }
