package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// hops is the limit of passing a turn from process to process through Redis, when whoever
// is next is woken and does not poll: one PUBLISH to the channel of the next process. It is
// no lock: the processes take turns in a ring, there is no lease and no token, and when one
// of them dies the turn is gone.
type hops struct {
	rdb     *redis.Client
	process int64
	ctx     context.Context
	end     context.CancelFunc
	readers sync.WaitGroup

	mu    sync.Mutex
	rings map[string]*ring
}

// ring is the one of a key, as one process sees it.
type ring struct {
	ears *redis.PubSub
	turn chan struct{} // somebody passed it to this process
}

func openHops(e Env) (Locker, error) {
	ctx, end := context.WithCancel(context.Background())
	return &hops{rdb: dialGoRedis(e), process: e.Process, ctx: ctx, end: end, rings: map[string]*ring{}}, nil
}

func ringChannel(key string, process int64) string { return fmt.Sprintf("hop:%s:%d", key, process) }

// join returns the ring of key. Whoever joins first has the first turn.
func (l *hops) join(key string) (*ring, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.rings[key]; r != nil {
		return r, nil
	}
	r := &ring{l.rdb.Subscribe(l.ctx, ringChannel(key, l.process)), make(chan struct{}, 1)}
	if _, err := r.ears.Receive(l.ctx); err != nil { // it is subscribed
		return nil, errors.Join(err, r.ears.Close())
	}
	l.rings[key] = r
	l.readers.Go(func() {
		for {
			if _, err := r.ears.ReceiveMessage(l.ctx); err != nil {
				return
			}
			r.turn <- struct{}{}
		}
	})
	first, err := l.rdb.SetNX(l.ctx, "hop:"+key, 1, lease).Result()
	if first {
		r.turn <- struct{}{}
	}
	return r, err
}

func (l *hops) Do(ctx context.Context, key string, inside func(int64)) error {
	r, err := l.join(key)
	if err != nil {
		return err
	}
	select {
	case <-r.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	inside(0)
	for next := int64(1); next <= processes; next++ { // those that have not joined yet hear nothing
		heard, err := l.rdb.Publish(l.ctx, ringChannel(key, (l.process+next)%processes), "").Result()
		if err != nil || heard > 0 {
			return err
		}
	}
	return errors.New("nobody hears whose turn it is")
}

func (l *hops) Hold(context.Context, string) (Held, error) { return nil, errNever }

func (l *hops) Close() error {
	l.end()
	var errs []error
	for _, r := range l.rings {
		errs = append(errs, r.ears.Close())
	}
	l.readers.Wait()
	return errors.Join(append(errs, l.rdb.Close())...)
}
