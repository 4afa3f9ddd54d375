// Package foreign takes locks that other libraries keep in a SQL database, under their names and in their formats:
// ShedLock's table, the advisory locks of PostgreSQL and GET_LOCK of MySQL and MariaDB. With bridge.Foreign it lets
// fencelock exclude programs that still use them:
//
//	old := bridge.Foreign(foreign.ShedLock(db, foreign.Postgres, nil))
//	locks, err := fencelock.New(bridge.New(old, sqllock.New(db, sqllock.Postgres, nil)), nil)
//
// None of these locks has a fencing token before the bridge. Claims that wait for ShedLock ask again. Those that wait
// for the others stand in the line of the server.
//
// An advisory lock and GET_LOCK belong to a session: each lock that is held, and each claim that waits, takes a
// connection of its own from the pool, and a pooler that gives transactions different sessions cannot keep them. Such
// a lock has no lease. It ends when its session ends, also while its holder runs: the holder hears of that at its next
// renewal, a third of a TTL later. A holder that is stopped keeps it. GET_LOCK is refused on a server that is
// read-only, whose locks exclude nobody on its primary.
//
// An error matches driver.ErrRefused if the database refused, and says what to do.
package foreign
