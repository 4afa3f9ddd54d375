package traffic

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// interrupted ends the context of some calls of a backend early.
type interrupted struct {
	driver.Backend
	driver.Alarm
	until  context.Context
	every  float64
	within time.Duration
	ended  *atomic.Int64
}

// Interrupt ends the context of one in so many calls of b at a random moment, until ctx ends,
// and counts those that had not ended before. A driver of SQLite answers that with
// sqlite3_interrupt, which ends the statement that runs. It is for SQLite what the fault
// "statements" is for servers.
func Interrupt(
	ctx context.Context, b driver.Backend, every float64, within time.Duration, ended *atomic.Int64,
) driver.Backend {
	return interrupted{b, b.(driver.Alarm), ctx, every, within, ended}
}

func (b interrupted) context(ctx context.Context) (context.Context, func()) {
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

func (b interrupted) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	ctx, done := b.context(ctx)
	defer done()
	return b.Backend.Enter(ctx, c)
}

func (b interrupted) Renew(ctx context.Context, ts []driver.Ticket) []error {
	ctx, done := b.context(ctx)
	defer done()
	return b.Backend.Renew(ctx, ts)
}

func (b interrupted) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	ctx, done := b.context(ctx)
	defer done()
	return b.Backend.Leave(ctx, t, e)
}
