package sql_test

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/worker"
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
		must(t, err)
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
		must(t, os.Remove(path))
	}
}

// remove deletes the database with its log.
func (s *store) remove(t testing.TB) {
	t.Helper()
	remove(t, s.name, s.name+"-wal", s.name+"-shm")
}

func rename(t testing.TB, from, to string) {
	t.Helper()
	must(t, os.Rename(from, to))
}

// copyFile copies in another process: to close a second descriptor of a database file drops
// the locks that SQLite has on it in this process.
func copyFile(t testing.TB, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
}

// eachReplacement replaces a file under what f prepares, once in each way.
func eachReplacement(t *testing.T, f func(t *testing.T, s *store, b *sqllock.Backend, replace func())) {
	t.Helper()
	t.Parallel()
	for _, r := range replacements {
		t.Run("SQLite/"+r.name, func(t *testing.T) {
			t.Parallel()
			s := sqlite.store(t)
			b := s.polling(t)
			f(t, s, b, func() {
				// A folder that has been as it is for a while is not searched again.
				pause(100 * time.Millisecond)
				use(t, b, "replaced")
				r.do(t, s.name)
			})
		})
	}
}

// TestFileThatWasReplacedEndsItsClaims replaces the file under a holder. Its next renewal
// must say that the claim is gone, and later calls must use the file that the path leads to.
func TestFileThatWasReplacedEndsItsClaims(t *testing.T) {
	eachReplacement(t, func(t *testing.T, s *store, b *sqllock.Backend, replace func()) {
		first, second := hold(t, b, claim("first")), hold(t, b, claim("second"))
		renewed(t, b, first, second)
		replace()
		// In two calls: a claim stays gone when the new file is open.
		for _, ticket := range []driver.Ticket{first, second} {
			gone(t, "Renew in a file that was replaced", renew(b, soon(t), ticket))
		}
		// What this Backend takes from now on, others see.
		other := s.polling(t)
		leaveAll(t, b)
		again := hold(t, b, claim("first"))
		busy(t, other, "first")
		renewed(t, b, again)
		leave(t, b, again)
		empty(t, other)
	})
}

// TestGrantInAReplacedFileIsNotOne enters where a connection still has the old file open.
func TestGrantInAReplacedFileIsNotOne(t *testing.T) {
	eachReplacement(t, func(t *testing.T, s *store, b *sqllock.Backend, replace func()) {
		use(t, b, "k")
		renewed(t, b, hold(t, b, claim("other")))
		replace()
		here := hold(t, b, claim("k"))
		other := s.polling(t)
		busy(t, other, "k")
		leave(t, b, here)
		leaveAll(t, other)
	})
}

// TestHolderAndWaiterOfAReplacedFile has the core hold and wait while the file is deleted.
func TestHolderAndWaiterOfAReplacedFile(t *testing.T) {
	only(t, sqlite, func(t *testing.T, s *store) {
		client := func() *fencelock.Client {
			c := testclient.New(t, s.polling(t), &fencelock.Options{TTL: 10 * time.Minute})
			t.Cleanup(func() { c.Close() })
			return c
		}
		a, b := client(), client()
		ctx := t.Context()
		held := testclient.Lock(t, a, "k")
		type result struct {
			lease *fencelock.Lease
			err   error
		}
		waits := behind(func() result {
			l, err := b.Lock(ctx, "k")
			return result{l, err}
		})
		look := s.polling(t)
		until(t, "the second client waits", func() bool {
			l, err := look.Line(ctx, "k")
			return err == nil && len(l.Claims) == 2
		})
		s.remove(t)
		steps.Is(t, "a renewal", held.Renew(ctx), fencelock.ErrBroken)
		<-held.Context().Done()
		got := <-waits
		if got.err != nil {
			t.Fatalf("the waiter was not granted in the new file: %v", got.err)
		}
		steps.Is(t, "a try in the new file", second(a.TryLock(ctx, "k")), fencelock.ErrNotAcquired)
		steps.OK(t, got.lease.Release(ctx))
	})
}

// TestLogThatStayedBehindIsRefused replaces only the database file. SQLite would apply the
// commits in the old -wal file to the new database.
func TestLogThatStayedBehindIsRefused(t *testing.T) {
	polled(t, []kind{sqlite}, func(t *testing.T, s *store, b *sqllock.Backend) {
		first := hold(t, b, claim("k"))
		renewed(t, b, first)
		fresh := filepath.Join(t.TempDir(), "fresh.db")
		other := s.openDSN(t, sqllock.SQLiteDSN(fresh))
		run(t, other, "CREATE TABLE app_guest (name TEXT)")
		other.Close()
		rename(t, fresh, s.name)
		gone(t, "Renew in a file that was replaced", renew(b, soon(t), first))
		_, err := b.Enter(soon(t), claim("k"))
		says(t, "Enter", err, driver.ErrPermanent, "-wal")
		// What the error says to do helps.
		remove(t, s.name+"-wal", s.name+"-shm")
		use(t, b, "k")
	})
}

// TestPoolThatClosesConnectionsLosesNoClaim: SQLite deletes the -wal file with the last
// connection, and the next one makes another. That is no loss.
func TestPoolThatClosesConnectionsLosesNoClaim(t *testing.T) {
	pools := map[string]func(db *sql.DB){
		"NoneIdle":     func(db *sql.DB) { db.SetMaxIdleConns(-1) },
		"ShortLives":   func(db *sql.DB) { db.SetConnMaxLifetime(time.Millisecond) },
		"One":          func(db *sql.DB) { db.SetMaxOpenConns(1) },
		"TwoForAll":    func(db *sql.DB) { db.SetMaxOpenConns(2) },
		"AsItIsOpened": func(db *sql.DB) {},
	}
	each(t, []kind{sqlite, barePath}, func(t *testing.T, s *store) {
		for name, set := range pools {
			t.Run(name, func(t *testing.T) {
				db := s.open(t)
				defer db.Close()
				set(db)
				b := s.backendOn(t, db)
				held := hold(t, b, claim("held"))
				for range 50 {
					// A context that ends interrupts a statement, and its connection is closed.
					ctx, cancel := context.WithCancel(soon(t))
					done := behind(func() error { return verbs(b, held)["Lines"](ctx) })
					renewed(t, b, held)
					cancel()
					<-done
					use(t, b, "k")
					renewed(t, b, held)
				}
				leave(t, b, held)
				empty(t, b)
			})
		}
	})
}

// TestConnectionsFromBeforeTheFirstCall were opened by the program, to a file that was
// replaced before it asked for a lock.
func TestConnectionsFromBeforeTheFirstCall(t *testing.T) {
	only(t, sqlite, func(t *testing.T, s *store) {
		db := s.open(t)
		run(t, db, "CREATE TABLE app_x (name TEXT)")
		s.remove(t)
		b := s.backendOn(t, db)
		held := hold(t, b, claim("k"))
		busy(t, s.polling(t), "k")
		leave(t, b, held)
	})
}

// TestProgramKeepsAConnectionToTheOldFile: the pool may lend it to a step, so nothing is
// granted until the program has given it back.
func TestProgramKeepsAConnectionToTheOldFile(t *testing.T) {
	only(t, sqlite, func(t *testing.T, s *store) {
		db := s.open(t)
		b := s.backendOn(t, db)
		use(t, b, "k")
		conn, err := db.Conn(soon(t))
		must(t, err)
		run(t, conn, "SELECT count(*) FROM fencelock_swap")
		s.remove(t)
		says(t, "Enter", second(b.Enter(soon(t), claim("k"))), nil, "connections to the old one")
		conn.Close()
		use(t, b, "k")
	})
}

// TestHardLinksAreRefused: SQLite names the -wal file after the name that was opened.
func TestHardLinksAreRefused(t *testing.T) {
	only(t, sqlite, func(t *testing.T, s *store) {
		p := s.start(t, worker.Hold, 10*time.Minute, 1)
		p.Held()
		link := filepath.Join(t.TempDir(), "link.db")
		must(t, os.Link(s.name, link))
		refusal(t, s.backendOn(t, s.openDSN(t, sqllock.SQLiteDSN(link))), "2 hard links", "delete the other names")
		p.Tell()
		p.Succeeds()
		b := s.polling(t)
		refusal(t, b, "2 hard links")
		remove(t, link)
		use(t, b, "k")
	})
}

// TestSymlinkLeadsToTheSameLocks: two paths to one file are one set of locks.
func TestSymlinkLeadsToTheSameLocks(t *testing.T) {
	polled(t, []kind{sqlite}, func(t *testing.T, s *store, b *sqllock.Backend) {
		held := hold(t, b, claim("k"))
		link := filepath.Join(t.TempDir(), "link.db")
		folder := filepath.Join(t.TempDir(), "folder")
		must(t, os.Symlink(s.name, link))
		must(t, os.Symlink(filepath.Dir(s.name), folder))
		for _, way := range []string{link, filepath.Join(folder, filepath.Base(s.name))} {
			db := s.openDSN(t, sqllock.SQLiteDSN(way))
			db.SetMaxIdleConns(-1)
			other := s.backendOn(t, db)
			busy(t, other, "k")
			// A link that leads elsewhere later does not take a process along.
			if err := os.Remove(link); err == nil {
				must(t, os.Symlink(filepath.Join(t.TempDir(), "elsewhere.db"), link))
			}
			busy(t, other, "k")
		}
		leave(t, b, held)
	})
}

// TestDeletedLogIsExplained: while a process still uses the file, SQLite answers a new one
// with a bare disk I/O error.
func TestDeletedLogIsExplained(t *testing.T) {
	only(t, sqlite, func(t *testing.T, s *store) {
		p := s.start(t, worker.Hold, 10*time.Minute, 1)
		p.Held()
		remove(t, s.name+"-wal")
		_, err := s.polling(t).Enter(soon(t), claim("k"))
		says(t, "Enter", err, nil, "-wal", "end them")
		p.Kill()
	})
}

// copied copies the file as it is, and returns what replaces the file by the copy.
func (s *store) copied(t *testing.T) (path string, replace func()) {
	t.Helper()
	path = s.name + ".copy"
	copyFile(t, s.name, path)
	copyFile(t, s.name+"-wal", path+"-wal")
	return path, func() {
		remove(t, s.name+"-wal", s.name+"-shm")
		if _, err := os.Stat(path + "-wal"); err == nil {
			rename(t, path+"-wal", s.name+"-wal")
		}
		rename(t, path, s.name)
	}
}

// TestCopyThatWentOnKeepsItsClaims has a line go on in a file, and in another way in a copy of it, and puts the
// copy in place between the read and the swap of a step. What was read in the one is not swapped into the other,
// though both have one version.
func TestCopyThatWentOnKeepsItsClaims(t *testing.T) {
	only(t, sqlite, func(t *testing.T, s *store) {
		b := s.polling(t)
		first, next := hold(t, b, claim("k")), wait(t, b, claim("k"))
		renewed(t, b, next)
		path, replace := s.copied(t)
		must(t, b.Break(soon(t), "k", next.Token, driver.Break{}))
		db := s.openDSN(t, sqllock.SQLiteDSN(path))
		there := s.backendOn(t, db)
		leave(t, there, first)
		versions := []int64{
			ask[int64](t, s, "SELECT version FROM fencelock_swap"),
			column[int64](t, db, "SELECT version FROM fencelock_swap")[0],
		}
		steps.Same(t, "the version of the copy", versions[1], versions[0])
		must(t, there.Close())
		must(t, db.Close())
		program, err := s.openDSN(t, s.dsn).Conn(soon(t))
		must(t, err)
		must(t, second(program.ExecContext(soon(t), "BEGIN IMMEDIATE")))
		broken := behind(func() error { return b.Break(soon(t), "k", first.Token, driver.Break{}) })
		pause(300 * time.Millisecond) // it has read, and waits to write
		replace()
		must(t, second(program.ExecContext(soon(t), "ROLLBACK")))
		must(t, program.Close())
		gone(t, "Break of a claim that has left in the copy", <-broken)
		others := s.polling(t)
		busy(t, others, "k")
		renewed(t, others, next)
		leave(t, others, next)
		empty(t, b)
	})
}

// TestClaimsThatOutliveACopy: who goes by the ID of a claim may come from anywhere, so its claim goes on in the
// copy. A claim of this process does not, however it was taken.
func TestClaimsThatOutliveACopy(t *testing.T) {
	only(t, sqlite, func(t *testing.T, s *store) {
		b := s.polling(t)
		named := claim("named")
		named.Named = true
		byName, detached := hold(t, b, named), hold(t, b, claim("detached"))
		must(t, b.Detach(soon(t), detached))
		detached.Named = true
		waiting := wait(t, b, claim("named"))
		adopted, err := b.Adopt(soon(t), hold(t, b, claim("adopted")), claim("adopted"))
		must(t, err)
		_, replace := s.copied(t)
		replace()
		for what, ticket := range map[string]driver.Ticket{"waits": waiting, "was adopted": adopted} {
			err := renew(b, soon(t), ticket)
			gone(t, "Renew of a claim that "+what, err)
			says(t, "Renew of a claim that "+what, err, nil, "deleted or replaced")
		}
		renewed(t, b, byName, detached)
		leaveAll(t, b)
	})
}
