// Postgres hands a lock from one program to another, through PostgreSQL: woken by NOTIFY,
// and without.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver named "pgx"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

func main() {
	if err := play(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func play(args []string) error {
	ctx := context.Background()
	url := ""
	if len(args) > 0 {
		url = args[0]
	} else {
		dir, err := os.MkdirTemp("", "story")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		server, err := testserver.StartPostgres(ctx, dir)
		if err != nil {
			return err
		}
		defer server.Stop()
		url = server.URL()
	}
	for _, l := range []listening{listen(url), nil} {
		took, err := handOvers(ctx, url, l, 10)
		if err != nil {
			return err
		}
		fmt.Printf("10 hand-overs between two programs, woken by NOTIFY: %-5v  median %v\n",
			l != nil, took.Round(100*time.Microsecond))
	}
	return nil
}

// listening is an Options.Listen.
type listening = func(ctx context.Context, channel string, notify func()) error

// program is what each of the two has: a pool and a Client of its own.
func program(url string, l listening) (locks *fencelock.Client, end func(), err error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return nil, nil, err
	}
	locks, err = fencelock.New(sqllock.New(db, sqllock.Postgres, &sqllock.Options{CreateTables: true, Listen: l}), nil)
	if err != nil {
		return nil, nil, err
	}
	return locks, func() {
		locks.Close()
		db.Close()
	}, nil
}

// handOvers measures, n times, how long after one program's release the other one holds
// the lock, and returns the median.
func handOvers(ctx context.Context, url string, l listening, n int) (time.Duration, error) {
	one, end, err := program(url, l)
	if err != nil {
		return 0, err
	}
	defer end()
	other, end, err := program(url, l)
	if err != nil {
		return 0, err
	}
	defer end()
	var took []time.Duration
	for range n {
		lease, err := one.Lock(ctx, "story")
		if err != nil {
			return 0, err
		}
		held := make(chan error, 1)
		var at time.Time
		go func() {
			next, err := other.Lock(ctx, "story")
			at = time.Now()
			if err == nil {
				err = next.Release(ctx)
			}
			held <- err
		}()
		time.Sleep(300 * time.Millisecond) // the other one waits by now
		released := time.Now()
		if err := lease.Release(ctx); err != nil {
			return 0, err
		}
		if err := <-held; err != nil {
			return 0, err
		}
		took = append(took, at.Sub(released))
	}
	slices.Sort(took)
	return took[n/2], nil
}
