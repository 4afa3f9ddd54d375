package bench

import (
	"context"
	"time"
)

// watchdog renews a lock of a library that does not: a goroutine and a ticker for
// each lock, as their READMEs and their users do it.
type watchdog struct {
	stop    chan struct{}
	done    chan error
	release func(context.Context) error
}

func watch(ttl time.Duration, release, extend func(context.Context) error) *watchdog {
	w := &watchdog{make(chan struct{}), make(chan error, 1), release}
	go func() {
		tick := time.NewTicker(ttl / 3)
		defer tick.Stop()
		for {
			select {
			case <-w.stop:
				w.done <- nil
				return
			case <-tick.C:
			}
			if err := extend(context.Background()); err != nil {
				w.done <- err
				return
			}
		}
	}()
	return w
}

func (w *watchdog) Release(ctx context.Context) error {
	close(w.stop)
	if err := <-w.done; err != nil {
		return err
	}
	return w.release(ctx)
}
