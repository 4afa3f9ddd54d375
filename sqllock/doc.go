// Package sqllock keeps locks in a few tables of a database that the program
// already has, through database/sql and the program's own *sql.DB. SQLite is the
// one dialect so far: it needs no server, and excludes the processes of one host.
//
//	db, err := sql.Open("sqlite", sqllock.SQLiteDSN("/var/lib/app/locks.db"))
//	...
//	locks := fencelock.New(sqllock.New(db, sqllock.SQLite, &sqllock.Options{CreateTables: true}), nil)
//
// The *sql.DB stays the caller's: its pool may be shared with the program's own
// statements, may have a single connection, and is never closed here. A program
// that waits for a lock while it holds that single connection waits for itself.
//
// # SQLite
//
// The file must be on a file system of this host, where all processes that share
// it run. SQLite's own locks do not work over NFS and the like. SQLite 3.37 or
// later is needed; every driver that keeps to database/sql will do, and
// modernc.org/sqlite is the one that this package is tested with.
//
// Everything is right with any journal mode, busy timeout and synchronous level,
// whatever the DSN says or leaves out: each step takes the write lock before it
// reads, and steps that find the database busy are tried again until their
// context ends. What the DSN changes is speed:
//
//   - Write-ahead logging: a step costs one append to a file instead of a journal
//     that is written, synced and deleted. The mode is kept in the file. With
//     CreateTables a database that has no tables yet is put into it; any other is
//     left as it is.
//   - synchronous(NORMAL): a step does not wait for the disk. That is enough for
//     locks: a process that dies loses nothing, and a power failure that loses the
//     last steps ends every process of the host, so everyone who holds a lock too.
//     Tokens go on rising, because they are seeded by the wall clock. What is lost is
//     what was to outlive its holder, if it was written within the last moments: the
//     mark by which Once knows that a run has succeeded, and the rest of a MinHold.
//     With synchronous(FULL), which is SQLite's default, that is kept too.
//   - A busy timeout should be left out: SQLite waits in whole milliseconds for
//     steps that take some microseconds, and does not hear a context that ends.
//
// SQLiteDSN returns such a DSN. A disk that hangs makes the calls hang that are at it,
// whatever their contexts say: a system call cannot be interrupted.
//
// # Leases and clocks
//
// On Linux leases are counted on CLOCK_BOOTTIME, which goes on while the machine
// sleeps and which nobody can set, so stepping the wall clock neither ends nor
// prolongs a lease. After a restart of the host, leases that were left behind are
// judged once by the wall clock, and last one TTL more at most. On other systems,
// where no such clock can be read without more dependencies, leases are counted on
// the wall clock: setting it forward ends leases early (their holders notice by
// their own clocks, and tokens still order them), setting it back prolongs them.
//
// # Waking up
//
// A waiter is woken through a channel when the lock is released in its own
// process. On Linux other processes learn of it through inotify, within a fraction
// of a millisecond and at no cost while nothing happens: a release that grants a
// claim of another process sets the modification time of the database file, which
// is all that the others listen for. Elsewhere, or when the system has no inotify
// instance left, a process that waits asks the database every one to ten
// milliseconds, for some microseconds each. Besides, each line somebody waits in
// is read again every second, and when a lease ahead can have ended.
package sqllock
