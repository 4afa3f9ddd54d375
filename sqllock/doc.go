// Package sqllock keeps locks in a few tables of a database that the program
// already has, through database/sql and the program's own *sql.DB: PostgreSQL, MariaDB
// and MySQL, or SQLite, which needs no server and excludes the processes of one host.
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
// The path must go on leading to the file. Each grant and each renewal looks whether it
// does. If the file or its -wal was deleted, renamed or replaced, all claims in it are lost,
// and the next call closes the pool's connections and uses the file that is there now. A
// database with more than one hard link is refused, because SQLite names the -wal file after
// the name that was opened. Symlinks are followed once, by SQLiteDSN. One to a file that does
// not exist makes SQLite create that file: the command refuses it, a program should too.
//
// SQLiteDSN returns such a DSN. A disk that hangs makes the calls hang that are at it,
// whatever their contexts say: a system call cannot be interrupted.
//
// # PostgreSQL
//
// PostgreSQL 12 or later is needed, and 13, 15 and 18 are what this package is tested with,
// with github.com/jackc/pgx/v5/stdlib:
//
//	db, err := sql.Open("pgx", "postgres://app@db.example/app")
//	...
//	locks := fencelock.New(sqllock.New(db, sqllock.Postgres, &sqllock.Options{
//		CreateTables: true,
//		Listen:       listen, // see Options.Listen
//	}), nil)
//
// Each step is a call of a function that comes with the tables: one statement, one
// transaction, one round trip, contended or not, and one for a Renew of many leases. Nobody
// keeps a line locked by stopping in the middle of a step. A lock that nobody else wants is
// one row, which is changed once to take it and once to give it back; the first who wants it
// too moves the claim to a row of its own, which for a try that is refused is a write.
//
// With github.com/lib/pq, which is tested too, a statement with arguments takes two round
// trips unless the DSN says binary_parameters=yes. Other drivers will do if their errors have
// a method SQLState() string.
//
// Everything is right with any transaction isolation that the DSN, the role or the database
// asks for; READ COMMITTED, the default, is the fastest under contention. A step that could
// not be serialized, that was a deadlock's victim, or that waited longer than the role's
// lock_timeout was rolled back by the server, and is tried again until its context ends.
// A step whose context ends may still be applied.
//
// PgBouncer in transaction pooling and its like are fine, for nothing is kept in a session.
// But pgx prepares statements unless told otherwise, and poolers that do not track them
// (PgBouncer before 1.21) mix them up: the DSN needs default_query_exec_mode=exec then, or
// simple_protocol. That costs nothing here, a step is one round trip either way. Listen needs
// a connection past such a pooler.
//
// Who creates the tables owns them; another role needs SELECT, INSERT, UPDATE and DELETE on
// them, and nothing else. Names are not qualified: tables and functions are those that the
// search_path leads to.
//
// Leases are counted on the server's clock. Setting it forward ends leases early (their
// holders notice by their own clocks, and tokens still order them), setting it back prolongs
// them. What a crash of the server keeps is what synchronous_commit says: with its default
// a grant that was answered is there after the restart, and so are places in line, marks
// and what lingers. One step does not wait for the disk: a Leave that grants nobody
// anything. If the server crashes within the next moments, less than a second with the
// default wal_writer_delay, the lock may come back as held, and is free when its lease has
// ended. Locks do not survive a failover to a
// standby that lags behind; their tokens go on rising, as far as the clocks of both servers
// agree. A connection must be to the primary: with several hosts in the DSN, add
// target_session_attrs=read-write.
//
// A transaction that stays open for hours anywhere in the database keeps the server from
// forgetting old versions of rows, and a lock that is taken a hundred times a second becomes
// slow by it, as every such row does.
//
// # MariaDB and MySQL
//
// MariaDB 10.6 or later is needed, and 10.11 and 11.8 are what this package is tested with,
// with github.com/go-sql-driver/mysql. It is tested with MySQL 9.7, too; MySQL 8.0.29 or
// later has all that is used, but has not been tested. The tables are InnoDB's.
//
// Each step is a call of a stored procedure that comes with the tables: one round trip,
// contended or not, and nobody keeps a line locked by stopping in the middle of a step.
// Renew takes one for each hundred leases. A lock that nobody else wants is one row, which
// is changed once to take it and once to give it back; the first who wants it too moves the
// claim to a row of its own, which for a try that is refused is a write. Whoever creates the
// tables needs the rights CREATE and CREATE ROUTINE in the database, whoever uses them
// SELECT, INSERT, UPDATE, DELETE and EXECUTE; a binary log asks for nothing more, but its
// format must be MIXED or ROW, because steps run at READ COMMITTED.
//
// Everything is right whatever the DSN says of clientFoundRows, interpolateParams,
// parseTime, multiStatements, character sets, isolation, autocommit, SQL mode and time
// zone. Statements are sent as text without placeholders, so that no statement is
// prepared. A transaction that is open on a connection when the pool lends it to a step
// is committed, as database/sql's own BeginTx would.
//
// Leases are counted on the server's clock: SYSDATE, in UTC, which no session can set. A
// server that was started with sysdate-is-now lets sessions set it: none that uses these
// tables may SET timestamp there. Setting the server's clock forward ends leases early
// (their holders notice by their own clocks, and tokens still order them), setting it back
// prolongs them.
//
// A step that was chosen as the victim of a deadlock, or that waited for a lock for too
// long, was rolled back by the server and is tried again until its context ends. A step
// whose context ends is not taken back: the server may go on with it behind, for as long
// as innodb_lock_wait_timeout at most.
//
// What a crash of the server keeps is what innodb_flush_log_at_trx_commit says. Locks do
// not survive a failover to a replica that lags behind; their tokens go on rising, as far
// as the clocks of both servers agree. Galera has not been tested.
//
// # Leases and clocks on SQLite
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
// A waiter is woken through a channel when the lock is released in its own process, on
// every database. With PostgreSQL and Options.Listen other processes learn of it by NOTIFY,
// within a millisecond or so: a step that grants a claim of another process notifies that
// process alone. NOTIFY takes a lock on the whole database at commit, so nobody is notified
// where nobody waits. While the connection that listens is being made or is lost, and
// without Listen, and with MariaDB and MySQL, other processes ask the server: one question
// for all who wait in a Backend, every two milliseconds after somebody joined a line or
// was granted, and less often as the wait goes on, up to four times a second. It
// prolongs a wait by about an eighth. With SQLite on Linux other processes learn of it
// through inotify, within a fraction of a millisecond and at no cost while nothing
// happens: a release that grants a claim of another process sets the modification time
// of the database file, which is all that the others listen for. Elsewhere, or when the
// system has no inotify instance left, a process that waits asks the database every one
// to ten milliseconds, for some microseconds each. Besides, each line somebody waits in
// is read again every second, and when a lease ahead can have ended.
package sqllock
