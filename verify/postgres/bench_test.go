package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/fencelock/fencelock/driver"
)

// BenchmarkFreeLock is a lock that nobody else wants, taken and given back, beside the
// shortest transactions that the server makes: one that writes nothing, and two that write
// a row.
func BenchmarkFreeLock(b *testing.B) {
	url := newURL(b, "default_query_exec_mode=exec")
	db := openURL(b, url)
	be := backend(b, db)
	ctx := context.Background()
	if _, err := db.Exec("CREATE TABLE fencelock_bench (n bigint); INSERT INTO fencelock_bench VALUES (0)"); err != nil {
		b.Fatal(err)
	}
	b.Run("Lock", func(b *testing.B) {
		b.ReportAllocs()
		c := claim("orders/42")
		for b.Loop() {
			t, err := be.Enter(ctx, c)
			if err == nil {
				err = be.Leave(ctx, t, driver.Exit{})
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Select", func(b *testing.B) {
		for b.Loop() {
			var n int
			if err := db.QueryRow("SELECT $1::bigint", 1).Scan(&n); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("TwoUpdates", func(b *testing.B) {
		for b.Loop() {
			for range 2 {
				if _, err := db.Exec("UPDATE fencelock_bench SET n = n + $1", int64(1)); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

// BenchmarkRenew1000 renews a thousand leases at once.
func BenchmarkRenew1000(b *testing.B) {
	be := backend(b, openURL(b, newURL(b)))
	ctx := context.Background()
	var ts []driver.Ticket
	for i := range 1000 {
		t, err := be.Enter(ctx, claim(fmt.Sprint("key", i)))
		if err != nil {
			b.Fatal(err)
		}
		ts = append(ts, t)
	}
	for b.Loop() {
		for _, err := range be.Renew(ctx, ts) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	leaveAll(b, be, "")
}

// BenchmarkHandOver passes a lock from one Backend to another.
func BenchmarkHandOver(b *testing.B) {
	url := newURL(b)
	for name, views := range map[string][2]driver.Backend{
		"Listen": {listening(b, url), listening(b, url)},
		"Poll":   {backend(b, openURL(b, url)), backend(b, openURL(b, url))},
	} {
		b.Run(name, func(b *testing.B) {
			holder := hold(b, views[0], claim("k"))
			i := 0
			for b.Loop() {
				w := wait(b, views[1-i], claim("k"))
				leave(b, views[i], holder)
				holder = granted(b, views[1-i], w)
				i = 1 - i
			}
			leave(b, views[i], holder)
		})
	}
}

// BenchmarkLongLine enters and leaves behind 5 000 others.
func BenchmarkLongLine(b *testing.B) {
	be := backend(b, openURL(b, newURL(b)))
	ctx := context.Background()
	var ts []driver.Ticket
	for range 5000 {
		t, err := be.Enter(ctx, claim("k"))
		if err != nil {
			b.Fatal(err)
		}
		ts = append(ts, t)
	}
	for b.Loop() {
		t, err := be.Enter(ctx, claim("k"))
		if err == nil {
			err = be.Leave(ctx, t, driver.Exit{})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	for i := range ts {
		t := ts[len(ts)-1-i]
		if err := be.Leave(ctx, t, driver.Exit{}); err != nil {
			b.Fatal(err)
		}
	}
}
