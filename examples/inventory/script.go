package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Keys in Redis: how many pieces are left, and the orders that the database may not have yet.
const (
	stockKey  = "stock"
	ordersKey = "orders"
)

// deduct sells one piece: 1, or 0 if none is left, or -1 if nobody has loaded the stock. An order
// that is sent twice is sold once. The order is noted in the same step, so a seller that dies
// right after it loses nothing.
var deduct = redis.NewScript(`
if redis.call("sismember", KEYS[3], ARGV[1]) == 1 then return 1 end
local left = redis.call("get", KEYS[1])
if not left then return -1 end
if tonumber(left) <= 0 then return 0 end
redis.call("decr", KEYS[1])
redis.call("sadd", KEYS[3], ARGV[1])
redis.call("xadd", KEYS[2], "*", "buyer", ARGV[1])
return 1`)

var errNoStock = errors.New("the stock is not in Redis: load it from the database, with the orders under way taken off")

// scriptSale sells by the script alone. The orders get into the database afterwards.
type scriptSale struct {
	rdb    *redis.Client
	orders *orderWriter
}

func newScriptSale(db *sql.DB, rdb *redis.Client) *scriptSale {
	return &scriptSale{rdb, startOrderWriter(db, rdb)}
}

func (s *scriptSale) sell(ctx context.Context) error {
	fmt.Println("sells") // whoever is stopped here has read nothing that could be old
	time.Sleep(thinking)
	keys := []string{stockKey, ordersKey, ordersKey + ":seen"}
	switch sold, err := deduct.Run(ctx, s.rdb, keys, rand.Text()).Int(); {
	case err != nil:
		return err
	case sold < 0:
		return errNoStock
	case sold == 0:
		return errSoldOut
	}
	return nil
}

// orderWriter copies orders from Redis to the database. Every instance has one, and all of them
// copy all orders: the buyer is unique, so one that is there already changes nothing.
type orderWriter struct {
	db    *sql.DB
	rdb   *redis.Client
	stop  chan struct{}
	ended chan error
}

func startOrderWriter(db *sql.DB, rdb *redis.Client) *orderWriter {
	w := &orderWriter{db, rdb, make(chan struct{}), make(chan error, 1)}
	go func() { w.ended <- w.run(context.Background()) }()
	return w
}

// Wait returns when all orders that there are now are in the database.
func (w *orderWriter) Wait() {
	close(w.stop)
	if err := <-w.ended; err != nil {
		fmt.Println("orders:", err)
	}
}

func (w *orderWriter) run(ctx context.Context) error {
	last, over := "0", false
	for {
		select {
		case <-w.stop:
			over = true
		default:
		}
		entries, err := w.rdb.XRangeN(ctx, ordersKey, "("+last, "+", 100).Result()
		if err != nil {
			return err
		}
		if len(entries) == 0 && over {
			return nil
		}
		if len(entries) == 0 {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		if err := w.write(ctx, entries); err != nil {
			return err
		}
		last = entries[len(entries)-1].ID
	}
}

// write books each of these orders once.
func (w *orderWriter) write(ctx context.Context, entries []redis.XMessage) error {
	places, buyers := make([]string, len(entries)), make([]any, len(entries))
	for i, e := range entries {
		places[i], buyers[i] = "(?, 0)", e.Values["buyer"]
	}
	return inTx(ctx, w.db, func(tx *sql.Tx) error {
		insert := "INSERT IGNORE INTO orders (buyer, token) VALUES " + strings.Join(places, ", ")
		r, err := tx.ExecContext(ctx, insert, buyers...)
		if err != nil {
			return err
		}
		n, err := r.RowsAffected()
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE stock SET pieces = pieces - ? WHERE id = 1", n)
		return err
	})
}
