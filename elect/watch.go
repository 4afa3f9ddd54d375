package elect

import (
	"context"
	"iter"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
)

// Leader is who leads. The zero Leader is nobody.
type Leader struct {
	Owner string      // of the Client that leads, as Options.Owner says
	Note  string      // of its Election
	Token fence.Token // larger with every term
	Since time.Time   // by the store's clock
}

// Leader asks the store who leads. It costs one round trip. The answer may be out of
// date when it arrives: it is for people and for finding the leader's address, not
// for deciding what to write.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	line, err := e.locks.Line(ctx, e.key)
	if err != nil {
		return Leader{}, err
	}
	for _, c := range line.Holders {
		if c.Kind == fencelock.Exclusive && !c.Lingering {
			return Leader{Owner: c.Owner, Note: c.Note, Token: c.Token, Since: c.Since}, nil
		}
	}
	return Leader{}, nil
}

// Watch yields who leads, at first and whenever it has changed since it last looked,
// until ctx ends. It is for observers, which need not campaign. It looks every
// Options.Interval, at the cost of one round trip each time; a term that was over
// in between is not seen. An error is yielded each time the store gives no answer,
// with the zero Leader; Watch goes on afterwards.
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
