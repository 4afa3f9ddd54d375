package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// replacements are what people and programs do to a database file that is in use.
var replacements = []struct {
	name string
	do   func(t *testing.T, path string)
}{
	{"AllDeleted", func(t *testing.T, path string) { remove(t, path, path+"-wal", path+"-shm") }},
	{"DatabaseDeleted", func(t *testing.T, path string) { remove(t, path) }},
	{"DatabaseRenamed", func(t *testing.T, path string) { rename(t, path, path+".old") }},
	{"LogDeleted", func(t *testing.T, path string) { remove(t, path+"-wal") }},
	{"LogAndIndexDeleted", func(t *testing.T, path string) { remove(t, path+"-wal", path+"-shm") }},
	{"ReplacedByACopy", func(t *testing.T, path string) {
		// The copy has the claim in it.
		copyFile(t, path, path+".copy")
		copyFile(t, path+"-wal", path+".copy-wal")
		remove(t, path+"-shm")
		rename(t, path+".copy-wal", path+"-wal")
		rename(t, path+".copy", path)
	}},
	{"ReplacedByAnother", func(t *testing.T, path string) {
		db, err := sql.Open("sqlite", sqllock.SQLiteDSN(path+".new"))
		if err != nil {
			t.Fatal(err)
		}
		b := sqllock.New(db, sqllock.SQLite, &sqllock.Options{CreateTables: true})
		leave(t, b, hold(t, b, claim("z")))
		b.Close()
		db.Close()
		remove(t, path+"-wal", path+"-shm")
		rename(t, path+".new", path)
	}},
}

func remove(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func rename(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// copyFile copies in another process: to close a second descriptor of a database file drops
// the locks that SQLite has on it in this process.
func copyFile(t testing.TB, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
}

// TestFileThatWasReplacedEndsItsClaims replaces the file under a holder. Its next renewal
// must say that the claim is gone, and later calls must use the file that the path leads to.
func TestFileThatWasReplacedEndsItsClaims(t *testing.T) {
	t.Parallel()
	for _, r := range replacements {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			path := newFile(t)
			b := backend(t, openFile(t, path))
			first := hold(t, b, claim("first"))
			second := hold(t, b, claim("second"))
			renewed(t, b, first, second)
			r.do(t, path)
			// In two calls: a claim stays gone when the new file is open.
			for _, ticket := range []driver.Ticket{first, second} {
				if err := b.Renew(soon(t), []driver.Ticket{ticket})[0]; !driver.Gone(err) {
					t.Errorf("Renew of %q in a file that was replaced answered %v; want ErrGone", ticket.Key, err)
				}
			}
			// What this Backend takes from now on, others see.
			other := backend(t, openFile(t, path))
			for l, err := range b.Lines(soon(t), "") {
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range l.Claims {
					if err := b.Break(soon(t), l.Key, c.Token, ""); err != nil {
						t.Fatal(err)
					}
				}
			}
			again := hold(t, b, claim("first"))
			if _, err := other.Enter(soon(t), noWait(claim("first"))); !isBusy(err) {
				t.Errorf("another process that enters the new file was answered %v; want a BusyError", err)
			}
			renewed(t, b, again)
			leave(t, b, again)
			empty(t, other)
		})
	}
}

func isBusy(err error) bool {
	var busy *driver.BusyError
	return errors.As(err, &busy)
}

func renewed(t testing.TB, b *sqllock.Backend, ts ...driver.Ticket) {
	t.Helper()
	for i, err := range b.Renew(soon(t), ts) {
		if err != nil {
			t.Fatalf("Renew of %q: %v", ts[i].Key, err)
		}
	}
}

// TestGrantInAReplacedFileIsNotOne enters where a connection still has the old file open.
func TestGrantInAReplacedFileIsNotOne(t *testing.T) {
	t.Parallel()
	for _, r := range replacements {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			path := newFile(t)
			b := backend(t, openFile(t, path))
			leave(t, b, hold(t, b, claim("k")))
			renewed(t, b, hold(t, b, claim("other")))
			r.do(t, path)
			here := hold(t, b, claim("k"))
			other := backend(t, openFile(t, path))
			if _, err := other.Enter(soon(t), noWait(claim("k"))); !isBusy(err) {
				t.Errorf("another process that enters the new file was answered %v; want a BusyError", err)
			}
			leave(t, b, here)
			leaveAll(t, other, "")
		})
	}
}

// TestHolderAndWaiterOfAReplacedFile has the core hold and wait while the file is deleted.
func TestHolderAndWaiterOfAReplacedFile(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	client := func() *fencelock.Client {
		c := fencelock.New(backend(t, openFile(t, path)), &fencelock.Options{TTL: time.Second})
		t.Cleanup(func() { c.Close() })
		return c
	}
	a, b := client(), client()
	ctx := soon(t)
	held, err := a.Lock(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		lease *fencelock.Lease
		err   error
	}
	waits := make(chan result, 1)
	go func() {
		l, err := b.Lock(ctx, "k")
		waits <- result{l, err}
	}()
	look := backend(t, openFile(t, path))
	for {
		l, err := look.Line(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Claims) == 2 {
			break
		}
	}
	began := time.Now()
	remove(t, path, path+"-wal", path+"-shm")
	<-held.Context().Done()
	if took := time.Since(began); took > time.Second || !errors.Is(held.Err(), fencelock.ErrBroken) {
		t.Errorf("the holder was told %v after %v; want ErrBroken before its lease ends", held.Err(), took)
	}
	got := <-waits
	if got.err != nil {
		t.Fatalf("the waiter was not granted in the new file: %v", got.err)
	}
	if _, err := a.TryLock(ctx, "k"); !errors.Is(err, fencelock.ErrNotAcquired) {
		t.Errorf("the first client was answered %v in the new file; want ErrNotAcquired", err)
	}
	if err := got.lease.Release(ctx); err != nil {
		t.Error(err)
	}
}

// TestLogThatStayedBehindIsRefused replaces only the database file. SQLite would apply the
// commits in the old -wal file to the new database.
func TestLogThatStayedBehindIsRefused(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	db := openFile(t, path)
	b := backend(t, db)
	first := hold(t, b, claim("k"))
	renewed(t, b, first)
	fresh := filepath.Join(t.TempDir(), "fresh.db")
	other := openFile(t, fresh)
	if _, err := other.Exec("CREATE TABLE guest (name TEXT)"); err != nil {
		t.Fatal(err)
	}
	other.Close()
	rename(t, fresh, path)
	if err := b.Renew(soon(t), []driver.Ticket{first})[0]; !driver.Gone(err) {
		t.Errorf("Renew answered %v; want ErrGone", err)
	}
	_, err := b.Enter(soon(t), claim("k"))
	var p *driver.PermanentError
	if !errors.As(err, &p) || !strings.Contains(err.Error(), "-wal") {
		t.Errorf("Enter answered %v; want a PermanentError that names the -wal file", err)
	}
	// What the error says to do helps.
	remove(t, path+"-wal", path+"-shm")
	leave(t, b, hold(t, b, claim("k")))
}

// TestPoolThatClosesConnectionsLosesNoClaim: SQLite deletes the -wal file with the last
// connection, and the next one makes another. That is no loss.
func TestPoolThatClosesConnectionsLosesNoClaim(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(db *sql.DB){
		"NoneIdle":     func(db *sql.DB) { db.SetMaxIdleConns(-1) },
		"ShortLives":   func(db *sql.DB) { db.SetConnMaxLifetime(time.Millisecond) },
		"One":          func(db *sql.DB) { db.SetMaxOpenConns(1) },
		"TwoForAll":    func(db *sql.DB) { db.SetMaxOpenConns(2) },
		"AsItIsOpened": func(db *sql.DB) {},
	} {
		for mode, dsn := range map[string]string{"WAL": sqllock.SQLiteDSN(newFile(t)), "BarePath": newFile(t)} {
			t.Run(name+mode, func(t *testing.T) {
				t.Parallel()
				db := openDSN(t, dsn)
				set(db)
				b := backend(t, db)
				held := hold(t, b, claim("held"))
				for range 50 {
					// A context that ends interrupts a statement, and its connection is closed.
					ctx, cancel := context.WithCancel(soon(t))
					done := make(chan struct{})
					go func() {
						defer close(done)
						for range b.Lines(ctx, "") {
						}
					}()
					renewed(t, b, held)
					cancel()
					<-done
					leave(t, b, hold(t, b, claim("k")))
					renewed(t, b, held)
				}
				leave(t, b, held)
				empty(t, b)
			})
		}
	}
}

// TestConnectionsFromBeforeTheFirstCall were opened by the program, to a file that was
// replaced before it asked for a lock.
func TestConnectionsFromBeforeTheFirstCall(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	db := openFile(t, path)
	if _, err := db.Exec("CREATE TABLE app (name TEXT)"); err != nil {
		t.Fatal(err)
	}
	remove(t, path, path+"-wal", path+"-shm")
	b := backend(t, db)
	held := hold(t, b, claim("k"))
	other := backend(t, openFile(t, path))
	if _, err := other.Enter(soon(t), noWait(claim("k"))); !isBusy(err) {
		t.Errorf("another process was answered %v; want a BusyError", err)
	}
	leave(t, b, held)
}

// TestProgramKeepsAConnectionToTheOldFile: the pool may lend it to a step, so nothing is
// granted until the program has given it back.
func TestProgramKeepsAConnectionToTheOldFile(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	db := openFile(t, path)
	b := backend(t, db)
	leave(t, b, hold(t, b, claim("k")))
	conn, err := db.Conn(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(soon(t), "SELECT count(*) FROM fencelock_claim"); err != nil {
		t.Fatal(err)
	}
	remove(t, path, path+"-wal", path+"-shm")
	if _, err := b.Enter(soon(t), claim("k")); err == nil || !strings.Contains(err.Error(), "connections to the old one") {
		t.Errorf("Enter answered %v; want an error that names the program's connections", err)
	}
	conn.Close()
	leave(t, b, hold(t, b, claim("k")))
}

// TestHardLinksAreRefused: SQLite names the -wal file after the name that was opened.
func TestHardLinksAreRefused(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	p := start(t, order{Do: "hold", DSN: sqllock.SQLiteDSN(path), Key: "k", TTL: time.Minute})
	p.hears("held")
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Link(path, link); err != nil {
		t.Fatal(err)
	}
	refusal(t, backend(t, openFile(t, link)), "2 hard links", "delete the other names")
	p.tell()
	p.succeeds()
	b := backend(t, openFile(t, path))
	refusal(t, b, "2 hard links")
	remove(t, link)
	leave(t, b, hold(t, b, claim("k")))
}

// TestSymlinkLeadsToTheSameLocks: two paths to one file are one set of locks.
func TestSymlinkLeadsToTheSameLocks(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	b := backend(t, openFile(t, path))
	held := hold(t, b, claim("k"))
	link := filepath.Join(t.TempDir(), "link.db")
	folder := filepath.Join(t.TempDir(), "folder")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(path), folder); err != nil {
		t.Fatal(err)
	}
	for _, way := range []string{link, filepath.Join(folder, filepath.Base(path))} {
		db := openFile(t, way)
		db.SetMaxIdleConns(-1)
		other := backend(t, db)
		if _, err := other.Enter(soon(t), noWait(claim("k"))); !isBusy(err) {
			t.Errorf("who came by %s was answered %v; want a BusyError", way, err)
		}
		// A link that leads elsewhere later does not take a process along.
		if err := os.Remove(link); err == nil {
			if err := os.Symlink(filepath.Join(t.TempDir(), "elsewhere.db"), link); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := other.Enter(soon(t), noWait(claim("k"))); !isBusy(err) {
			t.Errorf("after the link was changed, who came by %s was answered %v; want a BusyError", way, err)
		}
	}
	leave(t, b, held)
}

// TestDeletedLogIsExplained: while a process still uses the file, SQLite answers a new one
// with a bare disk I/O error.
func TestDeletedLogIsExplained(t *testing.T) {
	t.Parallel()
	dsn := newFile(t)
	p := start(t, order{Do: "hold", DSN: sqllock.SQLiteDSN(dsn), Key: "k", TTL: time.Minute})
	p.hears("held")
	remove(t, dsn+"-wal")
	b := backend(t, openFile(t, dsn))
	_, err := b.Enter(soon(t), claim("k"))
	if err == nil || !strings.Contains(err.Error(), "-wal") || !strings.Contains(err.Error(), "end them") {
		t.Errorf("Enter answered %v; want an error that says what to do", err)
	}
	p.kill()
}
