package elect

import (
	"context"
	"iter"
	"time"

	"github.com/fencelock/fencelock/fence"
)

// Leader describes the process that leads. The zero Leader means that none does.
type Leader struct {
	Owner string      // of the Client that leads, as Options.Owner says
	Note  string      // of its Election
	Token fence.Token // larger with every term
	Since time.Time   // by the store's clock
}

// Leader returns the current leader. It costs one round trip. The result may be out of
// date when it arrives: use it to show or to find the leader, not to decide what to
// write.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	line, err := e.locks.Line(ctx, e.key)
	if err != nil {
		return Leader{}, err
	}
	for _, c := range line.Claims {
		if c.Granted && c.Kind == "exclusive" && !c.Lingering {
			return Leader{Owner: c.Owner, Note: c.Note, Token: c.Token, Since: c.Since}, nil
		}
	}
	return Leader{}, nil
}

// Watch yields the leader, and each new leader that it finds, until ctx ends. It is for
// observers, which need not campaign. It polls every Options.Interval, at one round trip
// each, and misses a term that begins and ends in between. If the store does not respond,
// Watch yields the error with the zero Leader, and continues.
func (e *Election) Watch(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		tick := time.NewTicker(e.o.Interval)
		defer tick.Stop()
		var last Leader
		for known := false; ; {
			now, err := e.Leader(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				if !yield(Leader{}, err) {
					return
				}
			case !known || now.Token != last.Token:
				if !yield(now, nil) {
					return
				}
				known, last = true, now
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}
}
