package httplock_test

import (
	"context"
	"errors"
	"iter"

	"github.com/fencelock/fencelock/driver"
)

// outage is a store that fails while on is true.
type outage struct {
	driver.Backend
	on  bool
	err error // what it answers
}

var errDown = errors.New("connection refused")

func (o *outage) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if o.on {
		return driver.Ticket{}, o.err
	}
	return o.Backend.Enter(ctx, c)
}

func (o *outage) Renew(ctx context.Context, ts []driver.Ticket) []error {
	if !o.on {
		return o.Backend.Renew(ctx, ts)
	}
	errs := make([]error, len(ts))
	for i := range errs {
		errs[i] = o.err
	}
	return errs
}

func (o *outage) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	if o.on {
		return o.err
	}
	return o.Backend.Leave(ctx, t, e)
}

func (o *outage) Line(ctx context.Context, key string) (driver.Line, error) {
	if o.on {
		return driver.Line{}, o.err
	}
	return o.Backend.Line(ctx, key)
}

func (o *outage) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	if o.on {
		return func(yield func(driver.Line, error) bool) { yield(driver.Line{}, o.err) }
	}
	return o.Backend.Lines(ctx, prefix)
}

func (o *outage) Detach(ctx context.Context, t driver.Ticket) error {
	if o.on {
		return o.err
	}
	return o.Backend.(driver.Detacher).Detach(ctx, t)
}

func (o *outage) Adopt(ctx context.Context, t driver.Ticket, by driver.Claim) (driver.Ticket, error) {
	return o.Backend.(driver.Detacher).Adopt(ctx, t, by)
}
