package httplock

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/fencelock/fencelock"
)

// tendEvery is how often a Server goes through the locks of states.
const tendEvery = 10 * time.Minute

// tendStates renews the sticky locks of the states, and ends those whose UNLOCK was cut off,
// until the Server drains. Every Server on the same states does so: none of them has to last.
func (s *Server) tendStates() {
	ticker := time.NewTicker(tendEvery)
	defer ticker.Stop()
	for {
		s.tendAll(s.draining)
		select {
		case <-ticker.C:
		case <-s.draining.Done():
			return
		}
	}
}

func (s *Server) tendAll(ctx context.Context) {
	list, cancel := context.WithTimeout(ctx, stateStoreTimeout)
	names, err := s.o.States.Locked(list)
	cancel()
	s.tendFailed(ctx, "", err)
	for _, name := range names {
		if ctx.Err() != nil {
			return
		}
		one, cancel := context.WithTimeout(ctx, stateStoreTimeout)
		s.tendFailed(ctx, stateKeyPrefix+name, s.tend(one, name))
		cancel()
	}
}

func (s *Server) tend(ctx context.Context, name string) error {
	l, _, err := s.o.States.Lock(ctx, name)
	switch {
	case err != nil || l.ID == "":
		return err
	case l.Ending:
		return s.endState(ctx, name, l.Handle, func() error { return s.locks.ReleaseDetached(ctx, l.Handle) })
	case l.TTL == 0 && time.Since(l.Since) > stateGrace: // its LOCK has been answered
		_, err = s.locks.RenewDetached(ctx, l.Handle, stickyTTL)
	}
	return err
}

// tendFailed writes down what went wrong. A lock that has ended is no failure: the next LOCK
// replaces its record.
func (s *Server) tendFailed(ctx context.Context, key string, err error) {
	if err == nil || ctx.Err() != nil || errors.Is(err, fencelock.ErrLost) || s.o.Audit == nil {
		return
	}
	s.o.Audit.Log(ctx, slog.LevelWarn, "a lock of a state could not be renewed", "key", key, "error", err.Error())
}
