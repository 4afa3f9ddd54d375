package postgres_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/driver"
)

// TestTryThatIsEndedTakesNoHeldLock tries a lock that is held, while the server ends the
// statements of the try. An Enter whose read of the line was ended must not find it empty.
func TestTryThatIsEndedTakesNoHeldLock(t *testing.T) {
	t.Parallel()
	for _, e := range []struct {
		name, parameter string
		gap             time.Duration
	}{
		{name: "CancelWithoutPause"},
		{name: "CancelEachMillisecond", gap: time.Millisecond},
		{name: "StatementTimeout1Millisecond", parameter: "statement_timeout=1"},
		{name: "StatementTimeout3Milliseconds", parameter: "statement_timeout=3"},
	} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			url := newURL(t)
			holder := backend(t, openURL(t, url))
			ticket := hold(t, holder, claim("k"))
			var busy *driver.BusyError
			if _, err := holder.Enter(soon(t), noWait(claim("k"))); !errors.As(err, &busy) {
				t.Fatalf("a try of the held lock answered %v", err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			theirs := url
			if e.parameter != "" {
				theirs = url + "&" + e.parameter
			} else {
				wg.Go(func() { cancelAll(ctx, t, url, e.gap) })
			}
			var tries, ended atomic.Int64
			for range 3 {
				b := backend(t, openURL(t, theirs))
				wg.Go(func() {
					for ctx.Err() == nil {
						got, err := b.Enter(soon(t), noWait(claim("k"))) // to its end: nothing of it goes on behind
						tries.Add(1)
						if !errors.As(err, new(*driver.BusyError)) {
							ended.Add(1)
						}
						if err == nil {
							t.Errorf("a try of the held lock was granted: %+v", got)
							return
						}
					}
				})
			}
			wg.Wait()
			t.Logf("%d tries, %d were ended", tries.Load(), ended.Load())
			if tries.Load() == ended.Load() || ended.Load() == 0 && e.parameter == "" {
				t.Errorf("%d of %d tries were ended; want some, and not all", ended.Load(), tries.Load())
			}
			if err := holder.Renew(soon(t), []driver.Ticket{ticket})[0]; err != nil {
				t.Errorf("Renew by the holder: %v", err)
			}
			leave(t, holder, ticket)
			empty(t, holder)
		})
	}
}

// cancelAll ends the statements of all others in a database, again and again.
func cancelAll(ctx context.Context, t *testing.T, url string, gap time.Duration) {
	admin, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Error(err)
		return
	}
	defer admin.Close(context.Background())
	for ctx.Err() == nil {
		_, err := admin.Exec(ctx, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()`)
		if err != nil && ctx.Err() == nil {
			t.Error(err)
			return
		}
		select {
		case <-time.After(gap):
		case <-ctx.Done():
		}
	}
}
