package bench

import (
	"context"
	"fmt"
	"time"
)

// Env is where the libraries keep their locks.
type Env struct {
	URL   string        // of the server
	Addr  string        // of the server: host:port
	Nodes []string      // of a quorum: host:port
	Dir   string        // for files; the same for all processes of a run
	Serve string        // the command fencelock, where it serves
	TTL   time.Duration // of every lease

	Process int64 // of those that contend, from 0
}

// Locker is one library, opened. Its methods may be called from many goroutines at once.
type Locker interface {
	// Do waits for the lock of key, calls inside under it and unlocks, as a user of the
	// library would: the adapter adds no allocation. token is 0 if the library has none. When
	// ctx ends while it waits, Do returns an error; a library that cannot give up returns when
	// it has had the lock.
	Do(ctx context.Context, key string, inside func(token int64)) error
	// Hold takes the lock of key and has it renewed until Release.
	Hold(ctx context.Context, key string) (held any, err error)
	// Release gives back what Hold returned. It is an error if the lock was lost.
	Release(ctx context.Context, held any) error
	Close() error
}

// library is a Locker made of functions. H is what a holder gets from the library.
type library[H any] struct {
	lock   func(ctx context.Context, key string) (H, error)
	unlock func(ctx context.Context, key string, h H) error
	token  func(H) int64 // nil: there are none
	close  func() error

	// extend renews a lock; nil if the library does that itself. Its users call it from a
	// goroutine for each lock, and so does Hold, each third of ttl.
	extend func(ctx context.Context, h H) error
	ttl    time.Duration
}

// An opener opens a library for an Env.
type opener = func(Env) (Locker, error)

// onClient opens a library on a client that dial returns.
func onClient[C, H any](dial func(Env) (C, error), adapt func(Env, C) library[H]) opener {
	return func(e Env) (Locker, error) {
		client, err := dial(e)
		if err != nil {
			return nil, err
		}
		l := adapt(e, client)
		return &l, nil
	}
}

func (l *library[H]) Do(ctx context.Context, key string, inside func(token int64)) error {
	h, err := l.lock(ctx, key)
	if err != nil {
		return err
	}
	var token int64
	if l.token != nil {
		token = l.token(h)
	}
	inside(token)
	return l.unlock(ctx, key, h)
}

func (l *library[H]) Hold(ctx context.Context, key string) (any, error) {
	h, err := l.lock(ctx, key)
	if err != nil || l.extend == nil {
		return h, err
	}
	w := &watched[H]{h, make(chan struct{}), make(chan error, 1)}
	go func() { w.ended <- l.renew(w) }()
	return w, nil
}

func (l *library[H]) Release(ctx context.Context, held any) error {
	if w, ok := held.(*watched[H]); ok {
		close(w.stop)
		if err := <-w.ended; err != nil {
			return err
		}
		return l.unlock(ctx, "", w.held)
	}
	return l.unlock(ctx, "", held.(H))
}

func (l *library[H]) Close() error { return l.close() }

// watched is a lock that a goroutine of ours renews.
type watched[H any] struct {
	held  H
	stop  chan struct{}
	ended chan error // of the goroutine
}

func (l *library[H]) renew(w *watched[H]) error {
	tick := time.NewTicker(l.ttl / 3)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return nil
		case <-tick.C:
		}
		if err := l.extend(context.Background(), w.held); err != nil {
			return fmt.Errorf("the lock was lost: %w", err)
		}
	}
}
