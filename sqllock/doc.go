// Package sqllock keeps locks in a few tables of a database that the program already has: PostgreSQL,
// MariaDB, MySQL or SQLite. SQLite needs no server, and excludes the processes of one host.
//
//	db, err := sql.Open("sqlite", sqllock.SQLiteDSN("/var/lib/app/locks.db"))
//	...
//	locks, err := fencelock.New(sqllock.New(db, sqllock.SQLite, &sqllock.Options{CreateTables: true}), nil)
//
// The *sql.DB stays the caller's, and the Backend never closes it. Its pool may serve
// the program's own statements too, and may have a single connection. A program that
// waits for a lock while it holds that single connection waits for itself.
//
// SetMaxOpenConns may be called at any time. While transactions of the program have all
// connections of the pool, no lease is lost: on PostgreSQL, MariaDB and MySQL a renewal, a
// release or a look of a waiter opens one connection on top of the bound, and closes it
// afterwards. A call that begins to want a lock needs a connection that the program leaves
// free; the error of a call that got none names the pool.
//
// # SQLite
//
// The file must be on a local file system: SQLite's own locks do not work over NFS and similar
// ones. SQLite must be 3.37 or later. Any driver that follows database/sql will do;
// modernc.org/sqlite is tested.
//
// Locks are correct with any journal mode, busy timeout and synchronous level. A statement that
// finds the database busy is retried until its context ends. The DSN only changes the speed:
//
//   - Write-ahead logging: a step appends to one file. Without it a step writes, syncs and deletes a
//     journal. CreateTables sets the mode on a database without tables, and leaves others alone.
//   - synchronous(NORMAL): a step does not wait for the disk. A process that dies loses nothing. A
//     power failure may lose the last steps, but it also ends every holder, and tokens still rise.
//     It may also lose the latest marks of Once and the rest of a MinHold, which
//     synchronous(FULL), SQLite's default, keeps.
//   - No busy timeout: SQLite waits in whole milliseconds, and does not notice a context that ends.
//   - A pool without a bound (SetMaxOpenConns): a bound costs a free lock a sixth of its time. The
//     Backend itself uses five connections at most.
//
// SQLiteDSN returns such a DSN. Calls block while the disk blocks, whatever their contexts say.
//
// The path must keep leading to the same file. Each grant and each renewal checks that. If the file
// or its -wal was deleted, renamed or replaced, all claims in it are lost, and the next call uses the
// file that is now at the path. A database with more than one hard link is refused, because SQLite
// names the -wal file after the opened name. SQLiteDSN follows symlinks once. A program should refuse
// a symlink to a file that does not exist, as the command does.
//
// On Linux a lease counts on CLOCK_BOOTTIME, which runs while the machine sleeps and which nobody can
// set. The first process after a restart of the host takes the time from the wall clock, or from the
// file if that is later, so each remaining lease lasts at most one TTL more. Times in the tables are of
// that clock. Other systems count leases on the wall clock: setting it forward ends leases early, and
// setting it back prolongs them.
//
// # PostgreSQL
//
// PostgreSQL must be 12 or later. Versions 13, 15 and 18 are tested, with
// github.com/jackc/pgx/v5/stdlib:
//
//	db, err := sql.Open("pgx", "postgres://app@db.example/app")
//	...
//	locks, err := fencelock.New(sqllock.New(db, sqllock.Postgres, &sqllock.Options{
//		CreateTables: true,
//		Listen:       listen, // see Options.Listen
//	}), nil)
//
// Each statement is a transaction of its own, so a client that stops keeps no line locked. A free lock
// takes one statement, and its Leave another. A claim that waits arrives by one. A Leave of a lock that
// others want reads the line and writes it if nobody else has: two, or four if somebody has. Renewals of
// many leases are one statement.
//
// Give the pool a bound of two or more (SetMaxOpenConns). The server starts a process for each connection.
// A statement whose context ends may still be applied. Unless the last thousand answers were in time, it
// goes on for up to a second: to give it up costs its connection, and a new one is slow at first. At most
// half of the connections of a pool do that. While no statement is answered all of them do, for up to eight
// seconds, and longer each time: a pooler keeps what was given up in its queue.
//
// github.com/lib/pq is tested, too. With it a statement takes two round trips, unless the DSN says
// binary_parameters=yes. Other drivers will do if their errors have a method SQLState() string.
//
// Locks are correct with any transaction isolation. READ COMMITTED, the default, is the fastest under
// contention. A step that could not be serialized, was a deadlock's victim or waited longer than the
// role's lock_timeout is retried until its context ends.
//
// PgBouncer in transaction pooling works, and so do similar poolers. One that does not track prepared
// statements (PgBouncer before 1.21) needs default_query_exec_mode=exec or simple_protocol in the DSN of
// pgx. The server then parses and plans each statement anew, which takes about three times as much of its
// time. Listen needs a connection that bypasses such a pooler.
//
// The role that creates the tables owns them. Another role needs SELECT, INSERT, UPDATE and DELETE on the
// tables, and nothing else. A database has one set of tables with the same Prefix: two roles with a
// search_path each would otherwise hold one lock in two schemas. The first call looks for tables in all
// schemas, and refuses to use or to create a second set.
//
// Leases count on the server's clock. Setting it forward ends leases early: holders notice by their own
// clocks, and tokens still order them. Setting it back prolongs leases.
//
// synchronous_commit decides what a crash of the server keeps, with one exception: a Leave that grants
// nobody anything does not wait for the disk. If the server crashes within a second of it, the lock may
// come back as held until its lease ends.
//
// A server may turn read-only while its connections stay open. A step that is refused for that goes on
// over the other connections of the pool, then over a new one. A server that others have replaced and that
// still takes writes refuses nothing: give the pool a SetConnMaxLifetime, as package storeurl does.
//
// A standby refuses to read a line, so a pooler that sends reads to standbys sends it to the primary.
// Waiters ask for news by a plain SELECT: behind such a pooler, without Listen, they may see a grant only
// when they read their line, after a second.
//
// Locks do not survive a failover to a standby that lags behind. Their tokens still rise, as far as the
// clocks of both servers agree. With several hosts in the DSN, add target_session_attrs=read-write.
//
// A transaction that stays open for hours anywhere in the database makes busy locks slow, because the
// server keeps old versions of their rows.
//
// # MariaDB and MySQL
//
// MariaDB must be 10.6 or later. MariaDB 10.11 and 11.8 and MySQL 9.7 are tested, with
// github.com/go-sql-driver/mysql. MySQL 8.0.29 or later has every feature that this package
// uses, but MySQL 8 has not been tested. The tables use InnoDB.
//
// The user that creates the tables needs the right CREATE, and a user of the tables SELECT, INSERT, UPDATE
// and DELETE. The format of a binary log must be MIXED or ROW. Locks are correct with any clientFoundRows,
// interpolateParams, parseTime, multiStatements, character set, isolation, autocommit, SQL mode and time
// zone. No statement is prepared. A session without autocommit, that reads only, or with READ UNCOMMITTED
// takes five round trips for each statement. A transaction that the pool lends with its connection is
// committed, as database/sql's own BeginTx would do. A claim that waits is told its place by one more
// statement, and Renew takes two for each hundred leases.
//
// Leases count on the server's clock: SYSDATE in UTC, which no session can set. On a server that was started
// with sysdate-is-now, no session that uses these tables may SET timestamp.
//
// The server may continue a step whose context has ended, for innodb_lock_wait_timeout at most.
// innodb_flush_log_at_trx_commit decides what a crash of the server keeps. Retries and failover are as on
// PostgreSQL.
//
// On Galera, and on Group Replication with several primaries, leases are safe whichever node a program
// writes to. But two nodes that write to one line undo each other's steps, and some calls run out of time.
// So have all programs write to one node, and to another only while that one is down. Locks of a transaction
// are refused there.
//
// # Locks of a transaction, and history
//
// On PostgreSQL, MariaDB and MySQL, Tx takes a lock that ends with the program's own transaction: see
// TxLocker.
//
// The history that package history writes is a table: one row per grant, as JSON with the fields of
// record.Entry. On PostgreSQL the encoding of the database must be UTF8. Locks of a transaction are not in it.
//
// # Waking up
//
// A release wakes a waiter of its own process through a channel, and a waiter of another process in one of
// these ways:
//
//   - PostgreSQL with Options.Listen: the step that grants a claim notifies the process of that claim alone,
//     within about a millisecond.
//   - Other servers, and PostgreSQL while nothing listens: a Backend polls for all its waiters, every two
//     milliseconds after a change, then less often, down to four times a second. That prolongs a wait by
//     about an eighth.
//   - SQLite on Linux: a release that grants a claim of another process sets the modification time of the
//     file, which the others watch by inotify. Elsewhere, or without an inotify instance, they poll every one
//     to ten milliseconds.
//
// A waiter also reads its line every second, and when a lease ahead can have ended.
package sqllock
