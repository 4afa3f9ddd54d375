package traffic

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Interrupted ends the context of one in so many calls of a backend at a random moment. A
// driver of SQLite answers that with sqlite3_interrupt, which ends the statement that runs. It
// is for SQLite what the fault "statements" is for servers.
type Interrupted struct {
	driver.Backend
	driver.LineReader
	until  context.Context
	every  float64
	within time.Duration
	ended  *atomic.Int64
}

// Interrupt makes calls of b end early, until ctx ends, and counts those that had not ended
// before.
func Interrupt(
	ctx context.Context, b driver.Backend, every float64, within time.Duration, ended *atomic.Int64,
) Interrupted {
	return Interrupted{b, b.(driver.LineReader), ctx, every, within, ended}
}

func (b Interrupted) context(ctx context.Context) (context.Context, func()) {
	if b.until.Err() != nil || rand.Float64()*b.every > 1 {
		return ctx, func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, rand.N(b.within))
	return ctx, func() {
		if ctx.Err() != nil {
			b.ended.Add(1)
		}
		cancel()
	}
}

// Enter is that of the backend below, and may be interrupted.
func (b Interrupted) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	ctx, done := b.context(ctx)
	defer done()
	return b.Backend.Enter(ctx, c)
}

// Renew is that of the backend below, and may be interrupted.
func (b Interrupted) Renew(ctx context.Context, ts []driver.Ticket) []error {
	ctx, done := b.context(ctx)
	defer done()
	return b.Backend.Renew(ctx, ts)
}

// Leave is that of the backend below, and may be interrupted.
func (b Interrupted) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	ctx, done := b.context(ctx)
	defer done()
	return b.Backend.Leave(ctx, t, e)
}

// Alarm is that of the backend below.
func (b Interrupted) Alarm(f func(id string, gone driver.ErrGone)) (stop func()) {
	return b.Backend.(driver.Alarm).Alarm(f)
}

var _ interface {
	driver.LineReader
	driver.Alarm
} = Interrupted{}
