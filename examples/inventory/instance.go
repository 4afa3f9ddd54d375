package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/redislock"
)

// lease is how long a lock lives without a sign of life. It is short, so that the story
// is.
const lease = 300 * time.Millisecond

// thinking is how long an instance takes between reading and writing.
var thinking time.Duration

var (
	errSoldOut = errors.New("sold out")
	errBusy    = errors.New("somebody else is selling")
)

// instance sells until nothing is left.
func instance(kind, postgres, addr string, slowly bool) error {
	if slowly {
		thinking = 10 * time.Millisecond
	}
	db, err := sql.Open("pgx", postgres)
	if err != nil {
		return err
	}
	defer db.Close()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()

	ctx := context.Background()
	var sell func() error
	switch kind {
	case "no-lock":
		sell = func() error { return sellOne(ctx, db) }
	case "tutorial":
		sell = func() error { return tutorial(ctx, rdb, func() error { return sellOne(ctx, db) }) }
	case "fencelock":
		client, err := fencelock.New(redislock.New(rdb, nil), &fencelock.Options{TTL: lease})
		if err != nil {
			return err
		}
		defer client.Close()
		sell = func() error {
			return client.Do(ctx, "stock/1", func(_ context.Context, l *fencelock.Lease) error {
				return sellGuarded(ctx, db, l.Token())
			})
		}
	case "script":
		s := newScriptSale(db, rdb)
		defer s.orders.Wait()
		sell = func() error { return s.sell(ctx) }
	default:
		return fmt.Errorf("there is no kind of lock called %q", kind)
	}
	for {
		switch err := sell(); {
		case errors.Is(err, errSoldOut):
			return nil
		case errors.Is(err, errBusy):
			time.Sleep(time.Millisecond)
		case errors.Is(err, fence.ErrStale), errors.Is(err, fencelock.ErrLost):
			// It was somebody else's turn by then: nothing was written. Try again.
		case err != nil:
			return err
		}
	}
}

// sellOne reads how many there are, thinks, and writes one less.
func sellOne(ctx context.Context, db *sql.DB) error {
	n, err := look(ctx, db)
	if err != nil {
		return err
	}
	return inTx(ctx, db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (buyer, token) VALUES ($1, 0)", rand.Text()); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE stock SET pieces = $1 WHERE id = 1", n-1)
		return err
	})
}

// sellGuarded is sellOne, and the row refuses a token smaller than one it has seen. It
// does so even though this function does not look whether its lock is still held.
func sellGuarded(ctx context.Context, db *sql.DB, token fence.Token) error {
	n, err := look(ctx, db)
	if err != nil {
		return err
	}
	return inTx(ctx, db, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO orders (buyer, token) VALUES ($1, $2)", rand.Text(), token)
		if err != nil {
			return err
		}
		return fence.Rows(tx.ExecContext(ctx,
			"UPDATE stock SET pieces = $1, fence = $2 WHERE id = 1 AND fence <= $2", n-1, token))
	})
}

// look reads the stock, says so, and takes a moment.
func look(ctx context.Context, db *sql.DB) (n int, err error) {
	if err := db.QueryRowContext(ctx, "SELECT pieces FROM stock WHERE id = 1").Scan(&n); err != nil {
		return 0, err
	}
	if n <= 0 {
		return 0, errSoldOut
	}
	fmt.Println("read", n)
	time.Sleep(thinking)
	return n, nil
}

func inTx(ctx context.Context, db *sql.DB, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// compareAndDelete releases a lock of the tutorials if it is still one's own.
var compareAndDelete = redis.NewScript(`
if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

// tutorial is the lock that good tutorials teach: it expires, it has an owner, and it is
// released by its owner only.
func tutorial(ctx context.Context, rdb *redis.Client, work func() error) error {
	owner := rand.Text()
	ok, err := rdb.SetNX(ctx, "lock:stock", owner, lease).Result()
	if err != nil {
		return err
	}
	if !ok {
		return errBusy
	}
	err = work()
	return errors.Join(err, compareAndDelete.Run(ctx, rdb, []string{"lock:stock"}, owner).Err())
}
