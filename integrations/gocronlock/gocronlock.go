// Package gocronlock lets gocron schedulers on several machines share their jobs: each
// run happens on one of them. A Locker has the period of its job:
//
//	locker := gocronlock.NewLocker(client, time.Minute)
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// Jobs of other periods need a Locker of their own: gocron.WithDistributedJobLocker.
//
// gocron does not tell a job that its lock was lost. A job whose writes must not happen
// twice needs tokens: let it take a lock of its own with Client.Do, and use an Elector,
// or nothing, here.
//
// A run whose machine dies is missed: the others were refused, and do not wait. If each
// tick has to be run, leave the Locker out, and let the job remember its ticks:
//
//	_, err := client.Once(ctx, "report", gocronlock.Slot(time.Now(), period), report)
//
// See examples/cron.
package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/slot"
)

// Slot returns the tick of a job that now is for, in the zone of now. The job is due at each multiple
// of period since midnight, as with gocron.CronJob, and period divides a day. Slot forgives a timer
// that is early by less than half a minute and half a period. The slots are those of fencelock once
// --slot, also on days when the clock of the zone jumps.
func Slot(now time.Time, period time.Duration) time.Time { return slot.Near(now, period) }

// Locker is a gocron.Locker. The lock of a job is its name, so jobs need names that
// are the same on all machines: gocron.WithName.
type Locker struct {
	client *fencelock.Client
	hold   time.Duration // how long a name stays taken after a run has begun
	opts   []fencelock.Option
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker for jobs that are due once in each period. The name of a job stays
// taken for nine tenths of the period after a run has begun, even if the run is over sooner, so a
// job runs at most once in that time, over all machines. This holds for clocks that differ by less
// than a tenth of the period. It also holds for schedules that count from the start of the program,
// such as gocron.DurationJob, whose ticks differ from machine to machine.
//
// A period that is shorter than that of the job lets such a job run on every machine. With the
// period 0, a job that ends before the clock of another machine reaches the tick runs there, too.
// opts are given to TryLock.
func NewLocker(client *fencelock.Client, period time.Duration, opts ...fencelock.Option) *Locker {
	hold := period - period/10
	return &Locker{client, hold, append([]fencelock.Option{fencelock.MinHold(hold)}, opts...)}
}

// Lock takes the lock of a job now, or not at all: then another machine runs it, and
// the error matches fencelock.ErrNotAcquired. It costs one round trip. If the store
// does not respond within a second, or nine tenths of the period if that is longer, the job does
// not run: it may run elsewhere.
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, max(l.hold, time.Second))
	defer cancel()
	lease, err := l.client.TryLock(ctx, job, l.opts...)
	if err != nil {
		return nil, err
	}
	return lock{lease}, nil
}

type lock struct{ lease *fencelock.Lease }

// Unlock releases the lock. gocron's ctx has ended when the scheduler stops; a lease is
// given back all the same.
func (l lock) Unlock(ctx context.Context) error { return l.lease.Release(ctx) }

// ErrNotLeader is the error of an Elector on all machines but one.
var ErrNotLeader = errors.New("another one is the leader")

// Elector is a gocron.Elector: one machine runs all jobs, until it stops or is lost.
//
//	elector := gocronlock.NewElector(ctx, client, "scheduler")
//	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
type Elector struct {
	key string

	mu    sync.Mutex
	lease *fencelock.Lease // nil if this is not the leader
	err   error            // why standing failed last, or nil
	done  chan struct{}
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector campaigns under key until ctx ends. Then it steps down, and the next one
// leads within milliseconds. After a crash the next one leads within a TTL.
func NewElector(ctx context.Context, client *fencelock.Client, key string, opts ...fencelock.Option) *Elector {
	e := &Elector{key: key, done: make(chan struct{})}
	go e.run(ctx, client, opts)
	return e
}

func (e *Elector) run(ctx context.Context, client *fencelock.Client, opts []fencelock.Option) {
	defer close(e.done)
	for ctx.Err() == nil {
		lease, err := client.Lock(ctx, e.key, opts...)
		e.set(lease, err)
		if err != nil {
			if errors.Is(err, fencelock.ErrInvalid) || errors.Is(err, fencelock.ErrClosed) {
				return // asking again would not change it
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			continue
		}
		<-lease.Context().Done() // lost, or ctx has ended
		e.set(nil, nil)
		_ = lease.Release(ctx) // a lease that was lost is over anyway
	}
}

func (e *Elector) set(lease *fencelock.Lease, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lease, e.err = lease, err
}

// IsLeader returns nil on the machine that leads at the moment of the call. It reads the
// clock of the lease, and costs no round trip.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.lease == nil && e.err != nil:
		return fmt.Errorf("%w, or nobody is: %w", ErrNotLeader, e.err)
	case e.lease == nil:
		return ErrNotLeader
	}
	if err := e.lease.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	return nil
}

// Done returns a channel that is closed when the Elector has stepped down, after the end
// of its ctx.
func (e *Elector) Done() <-chan struct{} { return e.done }
