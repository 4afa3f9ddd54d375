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
// The file must be on a file system of this host, where all processes that share it run:
// SQLite's own locks do not work over NFS and the like. SQLite 3.37 or later is needed. Every
// driver that keeps to database/sql will do; modernc.org/sqlite is tested.
//
// Everything is right with any journal mode, busy timeout and synchronous level: each step
// takes the write lock before it reads, and a step that finds the database busy is tried again
// until its context ends. What the DSN changes is speed:
//
//   - Write-ahead logging: a step appends to one file instead of writing, syncing and deleting
//     a journal. The file keeps the mode. CreateTables puts a database without tables into it,
//     and leaves any other as it is.
//   - synchronous(NORMAL): a step does not wait for the disk. A process that dies loses
//     nothing. A power failure that loses the last steps ends every holder, too, and tokens go
//     on rising, because they are seeded by the wall clock. It can lose a mark of the last
//     moments, by which Once knows that a run has succeeded, and the rest of a MinHold.
//     synchronous(FULL), SQLite's default, keeps these.
//   - No busy timeout: SQLite waits in whole milliseconds for steps of some microseconds, and
//     does not hear a context that ends.
//
// SQLiteDSN returns such a DSN. Calls block while the disk blocks, whatever their contexts
// say: a system call cannot be interrupted.
//
// The path must go on leading to the file. Each grant and each renewal looks whether it
// does. If the file or its -wal was deleted, renamed or replaced, all claims in it are lost,
// and the next call closes the pool's connections and uses the file that is there now. A
// database with more than one hard link is refused, because SQLite names the -wal file after
// the name that was opened. SQLiteDSN follows symlinks once. One to a file that does
// not exist makes SQLite create that file: the command refuses it, a program should too.
//
// On Linux a lease is counted on CLOCK_BOOTTIME, which goes on while the machine sleeps and
// which nobody can set. After a restart of the host, leases that were left behind are judged
// once by the wall clock, and last one TTL more at most. Other systems count leases on the wall
// clock: setting it forward ends leases early (holders notice by their own clocks, and tokens
// still order them), setting it back prolongs them.
//
// # PostgreSQL
//
// PostgreSQL 12 or later is needed; 13, 15 and 18 are tested, with
// github.com/jackc/pgx/v5/stdlib:
//
//	db, err := sql.Open("pgx", "postgres://app@db.example/app")
//	...
//	locks := fencelock.New(sqllock.New(db, sqllock.Postgres, &sqllock.Options{
//		CreateTables: true,
//		Listen:       listen, // see Options.Listen
//	}), nil)
//
// Each step is a call of a function that comes with the tables: one statement, one
// transaction, one round trip, and one for a Renew of many leases. Nobody keeps a line locked
// by stopping in the middle of a step. A lock that nobody else wants is one row; the first who
// wants it too moves the claim to a row of its own, so a try that is refused may write.
//
// With github.com/lib/pq, which is tested too, a statement takes two round trips unless the DSN
// says binary_parameters=yes. Other drivers will do if their errors have a method
// SQLState() string.
//
// Everything is right with any transaction isolation; READ COMMITTED, the default, is the
// fastest under contention. The server rolls back a step that could not be serialized, that
// was a deadlock's victim, or that waited longer than the role's lock_timeout; it is tried
// again until its context ends. A step whose context ends may still be applied.
//
// PgBouncer in transaction pooling and its like are fine, for nothing is kept in a session.
// But pgx prepares statements unless told otherwise, and poolers that do not track them
// (PgBouncer before 1.21) mix them up: the DSN needs default_query_exec_mode=exec then, or
// simple_protocol, which cost nothing here. Listen needs a connection past such a pooler.
//
// Who creates the tables owns them; another role needs SELECT, INSERT, UPDATE and DELETE on
// them, and nothing else. Tables and functions are those that the search_path leads to.
//
// Leases are counted on the server's clock. Setting it forward ends leases early (holders
// notice by their own clocks, and tokens still order them), setting it back prolongs them.
// What a crash of the server keeps is what synchronous_commit says, but for a Leave that
// grants nobody anything, which does not wait for the disk: after a crash within a second the
// lock may come back as held until its lease ends. Locks do not survive a failover to a
// standby that lags behind; their tokens go on rising, as far as the clocks of both servers
// agree. A connection must be to the primary: with several hosts in the DSN, add
// target_session_attrs=read-write.
//
// A transaction that stays open for hours anywhere in the database keeps the server from
// forgetting old versions of rows, and busy locks become slow, as every such row does.
//
// # MariaDB and MySQL
//
// MariaDB 10.6 or later is needed; 10.11 and 11.8 are tested, with
// github.com/go-sql-driver/mysql, and so is MySQL 9.7. MySQL 8.0.29 or later has all that is
// used, but has not been tested. The tables are InnoDB's.
//
// Each step is a call of a stored procedure that comes with the tables: one round trip, as on
// PostgreSQL. Renew takes one for each hundred leases. Whoever creates the tables needs the
// rights CREATE and CREATE ROUTINE in the database, whoever uses them SELECT, INSERT, UPDATE,
// DELETE and EXECUTE. The format of a binary log must be MIXED or ROW.
//
// Everything is right whatever the DSN says of clientFoundRows, interpolateParams,
// parseTime, multiStatements, character sets, isolation, autocommit, SQL mode and time
// zone. No statement is prepared. A transaction that is open on a connection when the pool
// lends it to a step is committed, as database/sql's own BeginTx would.
//
// Leases are counted on the server's clock, as on PostgreSQL: SYSDATE, in UTC, which no
// session can set. A server that was started with sysdate-is-now lets sessions set it: none
// that uses these tables may SET timestamp there.
//
// The server rolls back a step that was chosen as the victim of a deadlock, or that waited for
// a lock for too long, and it is tried again until its context ends. The server may go on with
// a step whose context has ended, for innodb_lock_wait_timeout at most.
//
// What a crash of the server keeps is what innodb_flush_log_at_trx_commit says. Failover is as
// on PostgreSQL. Galera has not been tested.
//
// # Waking up
//
// A release wakes a waiter of its own process through a channel. With PostgreSQL and
// Options.Listen, a step that grants a claim of another process notifies that process alone,
// within a millisecond or so. NOTIFY takes a lock on the whole database at commit, so nobody is
// notified where nobody waits. While the listening connection is not there, without Listen,
// and with MariaDB and MySQL, a Backend polls for all its waiters: every two milliseconds after
// somebody joined a line or was granted, and less often as the wait goes on, up to four times a
// second. That prolongs a wait by about an eighth. With SQLite on Linux a release that grants a
// claim of another process sets the modification time of the database file, which the others
// watch by inotify. Elsewhere, or without an inotify instance, a process that waits asks the
// database every one to ten milliseconds. Besides, each line somebody waits in is read again
// every second, and when a lease ahead can have ended.
package sqllock
