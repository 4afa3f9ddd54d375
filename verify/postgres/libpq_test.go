package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// TestLawsWithLibPQ is for programs that have github.com/lib/pq: it sends arguments in another
// way than pgx, or in two, and listens by itself.
func TestLawsWithLibPQ(t *testing.T) {
	t.Parallel()
	for name, params := range map[string][]string{"Plain": nil, "BinaryParameters": {"binary_parameters=yes"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := newURL(t, params...)
			laws(t, func(t *testing.T) driver.Backend {
				b := sqllock.New(openWith(t, "postgres", url), sqllock.Postgres, &sqllock.Options{CreateTables: true, Listen: pqListen(url)})
				t.Cleanup(func() { b.Close() })
				return b
			})
		})
	}
}

// pqListen is Options.Listen with lib/pq. Its Listener connects again by itself, without end
// and whatever ctx says, so it is closed as soon as it is cut off.
func pqListen(url string) func(ctx context.Context, channel string, heard func()) error {
	return func(ctx context.Context, channel string, heard func()) error {
		lost := make(chan error, 1)
		l := pq.NewListener(url, time.Second, time.Minute, func(e pq.ListenerEventType, err error) {
			if e == pq.ListenerEventDisconnected || e == pq.ListenerEventConnectionAttemptFailed {
				select {
				case lost <- err:
				default:
				}
			}
		})
		defer l.Close()
		stop := context.AfterFunc(ctx, func() { l.Close() }) // Listen waits for a connection
		defer stop()
		if err := l.Listen(channel); err != nil {
			return err
		}
		for {
			heard()
			select {
			case <-l.Notify:
			case err := <-lost:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}
