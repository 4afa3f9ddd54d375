package traffic

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/history"
)

// OnBackend makes Locks of a backend: what a Client of package fencelock makes of it.
// close is called after the Client was closed; it may be nil.
func OnBackend(b driver.Backend, o *fencelock.Options, close func()) Locks {
	c, err := fencelock.New(b, o)
	if err != nil {
		panic(err) // a mistake of the caller
	}
	return &ours{c: c, close: close}
}

// ours is a Client.
type ours struct {
	c     *fencelock.Client
	close func()
}

func (o *ours) Close() error {
	err := o.c.Close()
	if o.close != nil {
		o.close()
	}
	return err
}

func (o *ours) Take(ctx context.Context, w Want) (Lease, Outcome, error) {
	var opts []fencelock.Option
	switch {
	case w.Try:
		opts = append(opts, fencelock.Wait(0))
	case w.Wait > 0:
		opts = append(opts, fencelock.Wait(w.Wait))
	}
	var l *fencelock.Lease
	var err error
	switch {
	case w.Kind == history.Exclusive && w.Try:
		l, err = o.c.TryLock(ctx, w.Key, opts...)
	case w.Kind == history.Exclusive:
		l, err = o.c.Lock(ctx, w.Key, opts...)
	case w.Kind == history.Shared:
		l, err = o.c.RLock(ctx, w.Key, opts...)
	default:
		l, err = o.c.Acquire(ctx, w.Key, w.Weight, w.Size, opts...)
	}
	if err == nil {
		return lease{l, o.c}, Got, nil
	}
	return nil, outcomeOf(ctx, err, w.Try), err
}

// outcomeOf is what an error says of the claim.
func outcomeOf(ctx context.Context, err error, try bool) Outcome {
	switch {
	case ctx.Err() != nil || errors.Is(err, fencelock.ErrUnavailable) || errors.Is(err, fencelock.ErrClosed):
		return Unknown
	case errors.Is(err, fencelock.ErrBroken):
		return Unknown // a user broke it while it was on its way
	case errors.Is(err, fencelock.ErrNotAcquired) && try:
		return NotNow
	case errors.Is(err, fencelock.ErrNotAcquired):
		return Unknown // it was in line, and its Leave may still be on its way
	}
	return Strange
}

func (o *ours) Lines(ctx context.Context) ([]string, error) {
	var keys []string
	for line, err := range o.c.Lines(ctx, "") {
		if err != nil {
			return nil, err
		}
		keys = append(keys, line.Key)
	}
	return keys, nil
}

func (o *ours) Head(ctx context.Context, key string) (token, span int64, err error) {
	line, err := o.c.Line(ctx, key)
	if err != nil {
		return 0, 0, err
	}
	if len(line.Claims) > 0 && line.Claims[0].Granted {
		s := line.Claims[0]
		for span++; s.HasToken(s.Token + fence.Token(span)); span++ {
		}
		return int64(s.Token), span, nil
	}
	return 0, 0, nil
}

func (o *ours) Break(ctx context.Context, key string, token int64, notice time.Duration) (none bool, err error) {
	err = o.c.Break(ctx, key, fence.Token(token), fencelock.Break{Reason: "torture", Notice: notice})
	return driver.Gone(err), err
}

type lease struct {
	*fencelock.Lease
	c *fencelock.Client
}

func (l lease) Token() int64 { return int64(l.Lease.Token()) }

func (l lease) Release(ctx context.Context) (lost bool, err error) {
	err = l.Lease.Release(ctx)
	return errors.Is(err, fencelock.ErrLost), err
}

func (l lease) Again(context.Context) (Lease, error) {
	again, err := l.c.Lock(l.Context(), l.Key(), fencelock.Reentrant())
	if err != nil {
		return nil, err
	}
	return lease{again, l.c}, nil
}
