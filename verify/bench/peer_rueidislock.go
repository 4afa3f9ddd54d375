package bench

import (
	"context"
	"errors"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidisLocks is github.com/redis/rueidis/rueidislock with one key for each lock:
// more of them cost more, and make nothing safer on one server.
type rueidisLocks struct{ locker rueidislock.Locker }

// openRueidislock opens it. noLoop is the setting that its README recommends;
// without it, it is nearly fair, and hands over much more often.
func openRueidislock(noLoop bool) func(Env) (Locker, error) {
	return func(e Env) (Locker, error) {
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption:   rueidis.ClientOption{InitAddress: []string{e.Store}},
			KeyMajority:    1,
			NoLoopTracking: noLoop,
			KeyValidity:    e.TTL,
			ExtendInterval: e.TTL / 3,
			// The default is 20 ms: on a busy machine a request for a free lock takes longer
			// now and then, is given up for the next key, of which there is none, and waits
			// for ever.
			TryNextAfter: e.TTL,
		})
		if err != nil {
			return nil, err
		}
		return &rueidisLocks{locker}, nil
	}
}

func (l *rueidisLocks) Do(ctx context.Context, key string, inside func(int64)) error {
	_, unlock, err := l.locker.WithContext(ctx, key)
	if err != nil {
		return err
	}
	inside(0)
	unlock()
	return nil
}

func (l *rueidisLocks) Hold(ctx context.Context, key string) (Held, error) {
	ctx, unlock, err := l.locker.WithContext(ctx, key)
	if err != nil {
		return nil, err
	}
	return &rueidisHeld{ctx, unlock}, nil
}

func (l *rueidisLocks) Close() error {
	l.locker.Close()
	return nil
}

type rueidisHeld struct {
	ctx    context.Context
	unlock context.CancelFunc
}

func (h *rueidisHeld) Release(context.Context) error {
	lost := h.ctx.Err() != nil
	h.unlock()
	if lost {
		return errors.New("the lock was lost")
	}
	return nil
}
