package sqlite_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/fencelock/fencelock/driver"
)

// wal reads along in a database's write-ahead log, which says what goes to SQLite instead
// of over a wire.
type wal struct {
	path string
	at   int64 // how far it was read
}

// commits counts the transactions since the last call.
func (w *wal) commits(t testing.TB) (n int) {
	t.Helper()
	f, err := os.Open(w.path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	head := make([]byte, 32)
	if _, err := f.ReadAt(head, 0); err != nil {
		t.Fatal(err)
	}
	page := int64(binary.BigEndian.Uint32(head[8:]))
	frame := make([]byte, 24)
	for w.at = max(w.at, int64(len(head))); ; w.at += int64(len(frame)) + page {
		if _, err := f.ReadAt(frame, w.at); err != nil || string(frame[8:16]) != string(head[16:24]) {
			return n // the end, or what is left of an older log
		}
		if binary.BigEndian.Uint32(frame[4:]) != 0 { // the size of the database after a commit
			n++
		}
	}
}

// TestTransactionsOfAFreeLock counts them in the log, which is kept from being emptied.
func TestTransactionsOfAFreeLock(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	db := openFile(t, path)
	db.SetMaxOpenConns(1)
	b := backend(t, db)
	leave(t, b, hold(t, b, claim("warm")))
	var pages int
	if err := db.QueryRow("PRAGMA wal_autocheckpoint = 0").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	log := &wal{path: path}
	took := func(what string, want int, f func()) {
		t.Helper()
		f()
		if got := log.commits(t); got != want {
			t.Errorf("%s took %d transactions; want %d", what, got, want)
		}
	}
	log.commits(t)
	// One Enter in 256 sweeps idle lines besides; after the one that does, no other will for
	// long.
	for n := 2; n == 2; n = log.commits(t) {
		leave(t, b, hold(t, b, claim("warm")))
	}
	var one, w driver.Ticket
	took("Enter of a free lock", 1, func() { one = hold(t, b, claim("k")) })
	took("Enter of a held lock", 1, func() { w = wait(t, b, claim("k")) })
	took("Enter that does not wait", 0, func() {
		var busy *driver.BusyError
		if _, err := b.Enter(soon(t), noWait(claim("k"))); !errors.As(err, &busy) {
			t.Errorf("a try answered %v", err)
		}
	})
	took("Renew", 1, func() { b.Renew(soon(t), []driver.Ticket{one}) })
	took("Leave of a waiter", 1, func() { leave(t, b, w) })
	took("Leave of a holder", 1, func() { leave(t, b, one) })
	var many []driver.Ticket
	took("a hundred Enters", 100, func() {
		for i := range 100 {
			many = append(many, hold(t, b, claim(fmt.Sprint("key", i))))
		}
	})
	took("Renew of a hundred", 1, func() {
		for _, err := range b.Renew(soon(t), many) {
			if err != nil {
				t.Error(err)
			}
		}
	})
	for i := range many {
		leave(t, b, many[i])
	}
	empty(t, b)
}
