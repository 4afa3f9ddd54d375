package main

import (
	"cmp"
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
func instance(kind, dsn, addr string, slowly bool) error {
	if slowly {
		thinking = 10 * time.Millisecond
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()

	sell, end, err := seller(context.Background(), kind, db, rdb)
	if err != nil {
		return err
	}
	defer end()
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

// seller returns a function that sells one piece, and one that ends.
func seller(
	ctx context.Context, kind string, db *sql.DB, rdb *redis.Client,
) (sell func() error, end func(), err error) {
	end = func() {}
	switch kind {
	case "no-lock":
		sell = func() error { return sellOne(ctx, db) }
	case "tutorial", "watchdog":
		sell = func() error { return tutorial(ctx, rdb, kind == "watchdog", func() error { return sellOne(ctx, db) }) }
	case "update":
		sell = func() error { return sellByUpdate(ctx, db) }
	case "script":
		s := newScriptSale(db, rdb)
		sell, end = func() error { return s.sell(ctx) }, s.orders.Wait
	case "fencelock":
		client, err := fencelock.New(redislock.New(rdb, nil), &fencelock.Options{TTL: lease})
		if err != nil {
			return nil, nil, err
		}
		sell = func() error {
			return client.Do(ctx, "stock/1", func(_ context.Context, l *fencelock.Lease) error {
				return sellGuarded(ctx, db, l.Token())
			})
		}
		end = func() { _ = client.Close() }
	default:
		return nil, nil, fmt.Errorf("there is no kind of lock called %q", kind)
	}
	return sell, end, nil
}

// sellOne reads how many there are, thinks, and writes one less.
func sellOne(ctx context.Context, db *sql.DB) error {
	n, err := look(ctx, db)
	if err != nil {
		return err
	}
	return inTx(ctx, db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (buyer, token) VALUES (?, 0)", rand.Text()); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE stock SET pieces = ? WHERE id = 1", n-1)
		return err
	})
}

// sellGuarded is sellOne, and the row refuses a token smaller than one it has seen. It
// does so even though this function does not look whether its lock is still held.
func sellGuarded(ctx context.Context, db *sql.DB, token fence.Token) error {
	n, err := lookGuarded(ctx, db, token)
	if err != nil {
		return err
	}
	return writeGuarded(ctx, db, n-1, token)
}

// lookGuarded shows the token to the row before it reads. Otherwise an older holder could write
// after this read and before the write that follows it.
func lookGuarded(ctx context.Context, db *sql.DB, token fence.Token) (int, error) {
	err := fence.Rows(db.ExecContext(ctx, "UPDATE stock SET fence = ? WHERE id = 1 AND fence <= ?", token, token))
	if err != nil {
		return 0, err
	}
	return look(ctx, db)
}

// writeGuarded writes an order and what is left, or nothing.
func writeGuarded(ctx context.Context, db *sql.DB, n int, token fence.Token) error {
	return inTx(ctx, db, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO orders (buyer, token) VALUES (?, ?)", rand.Text(), token)
		if err != nil {
			return err
		}
		return fence.Rows(tx.ExecContext(ctx,
			"UPDATE stock SET pieces = ?, fence = ? WHERE id = 1 AND fence <= ?", n, token, token))
	})
}

// sellByUpdate lets the database decide: a row that is not changed is a piece that is not sold.
func sellByUpdate(ctx context.Context, db *sql.DB) error {
	fmt.Println("sells") // an instance that is stopped here has read nothing that could be old
	time.Sleep(thinking)
	return inTx(ctx, db, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, "UPDATE stock SET pieces = pieces - 1 WHERE id = 1 AND pieces > 0")
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return cmp.Or(err, errSoldOut)
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO orders (buyer, token) VALUES (?, 0)", rand.Text())
		return err
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

// renew keeps a lock of the tutorials if it is still one's own.
var renew = redis.NewScript(`
if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) else return 0 end`)

// tutorial is the lock that good tutorials teach: it expires, it has an owner, and it is
// released by its owner only. A watchdog renews it while its process runs.
func tutorial(ctx context.Context, rdb *redis.Client, watchdog bool, work func() error) error {
	owner := rand.Text()
	ok, err := rdb.SetNX(ctx, "lock:stock", owner, lease).Result()
	if err != nil {
		return err
	}
	if !ok {
		return errBusy
	}
	if watchdog {
		watched, stop := context.WithCancel(ctx)
		defer stop()
		go watch(watched, rdb, owner)
	}
	err = work()
	return errors.Join(err, compareAndDelete.Run(ctx, rdb, []string{"lock:stock"}, owner).Err())
}

func watch(ctx context.Context, rdb *redis.Client, owner string) {
	tick := time.NewTicker(lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// After an error the next tick tries again.
			_ = renew.Run(ctx, rdb, []string{"lock:stock"}, owner, lease.Milliseconds()).Err()
		}
	}
}
