package traffic

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// interrupting ends the context of one call in eight at a random moment. A driver of SQLite
// answers that with sqlite3_interrupt, which ends the statement that runs. It is for SQLite
// what the fault "statements" is for databases that are servers.
type interrupting struct {
	driver.Backend
	driver.LineReader
}

// interrupt returns b with calls that are interrupted.
func interrupt(b driver.Backend) driver.Backend {
	return interrupting{b, b.(driver.LineReader)}
}

func (b interrupting) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if rand.N(8) > 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, rand.N(time.Millisecond))
}

// Enter is that of the backend below, and may be interrupted.
func (b interrupting) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	ctx, cancel := b.context(ctx)
	defer cancel()
	return b.Backend.Enter(ctx, c)
}

// Renew is that of the backend below, and may be interrupted.
func (b interrupting) Renew(ctx context.Context, ts []driver.Ticket) []error {
	ctx, cancel := b.context(ctx)
	defer cancel()
	return b.Backend.Renew(ctx, ts)
}

// Leave is that of the backend below, and may be interrupted.
func (b interrupting) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	ctx, cancel := b.context(ctx)
	defer cancel()
	return b.Backend.Leave(ctx, t, e)
}

// Alarm is that of the backend below.
func (b interrupting) Alarm(f func(id string, gone driver.ErrGone)) (stop func()) {
	return b.Backend.(driver.Alarm).Alarm(f)
}
