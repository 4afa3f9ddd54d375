package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/verify/traffic"
)

// firstUse makes what is made with the first use, such as tables, before the traffic. It
// refuses a store that others use.
func (x *run) firstUse(ctx context.Context) (err error) {
	locks, err := x.service.Open(ctx, x.store.url, "", x.TTL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	if x.store.alone {
		return nil
	}
	if looker, ok := locks.(traffic.Admin); ok && !x.store.ours {
		switch left, err := looker.Lines(ctx); {
		case err != nil:
			return err
		case len(left) > 0:
			return fmt.Errorf("it is in use: %d locks are held or waited for there; "+
				"torture a store that nobody else uses", len(left))
		}
	}
	if err := takeOnce(ctx, locks, traffic.Want{Key: "first"}, 20*time.Second); err != nil {
		return fmt.Errorf("%s cannot be used: %w", x.service.Name, err)
	}
	return nil
}

// takeOnce takes a lock within a time, and gives it back.
func takeOnce(ctx context.Context, locks traffic.Locks, w traffic.Want, within time.Duration) error {
	soon, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	l, _, err := locks.Take(soon, w)
	if err != nil {
		return err
	}
	_, err = l.Release(ctx)
	return err
}

// inspect looks for what is left, and takes every key once.
func (x *run) inspect(ctx context.Context) (err error) {
	locks, err := x.service.Open(ctx, x.store.url, "", x.TTL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	wants, err := x.wants()
	if err != nil {
		return err
	}
	// The last worker may have been killed shortly before its end: its leases run out.
	limit := x.TTL + x.TTL/100 + x.service.Lag + 2*time.Second
	if err := x.awaitEmpty(ctx, locks, limit); err != nil {
		return err
	}
	var all errgroup.Group
	all.SetLimit(8)
	for _, w := range wants {
		all.Go(func() error {
			if err := takeOnce(ctx, locks, w, limit+5*time.Second); err != nil {
				x.odd(w.Key, "I5: when all is healed the key cannot be had: %v", err)
			}
			return nil
		})
	}
	_ = all.Wait()
	return x.awaitEmpty(ctx, locks, limit)
}

// wants are the keys that were used, each with all of its capacity.
func (x *run) wants() (map[string]traffic.Want, error) {
	lines, err := traffic.ReadAll(x.history)
	wants := map[string]traffic.Want{}
	for _, l := range lines {
		if l.Op != traffic.Call {
			continue
		}
		w := traffic.Want{Key: l.Key}
		if l.Kind == history.Permit {
			w.Kind, w.Weight, w.Size = l.Kind, l.Size, l.Size
		}
		wants[l.Key] = w
	}
	return wants, err
}

// awaitEmpty waits until the store holds no claim, if it can be asked.
func (x *run) awaitEmpty(ctx context.Context, locks traffic.Locks, within time.Duration) error {
	looker, ok := locks.(traffic.Admin)
	if !ok {
		return nil
	}
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		left, err := looker.Lines(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("looking for what is left: %w", err)
		case len(left) == 0:
			return nil
		case time.Since(begun) > within:
			x.odd(left[0], "I8: after %v the store still holds %d claims, as of %s", within, len(left), left[0])
			return nil
		}
	}
}

func (x *run) odd(key, format string, args ...any) {
	x.rec.Write(traffic.Line{Op: traffic.Odd, Key: key, Text: fmt.Sprintf(format, args...)})
}
