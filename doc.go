// Package fencelock gives a program a lock that holds across machines. The lock lives
// in a store that the program already has. Each kind of store has a package:
//
//   - redislock: Redis
//   - sqllock: PostgreSQL, MySQL and MariaDB, or a SQLite file on one host
//   - etcdlock: etcd
//   - zklock: ZooKeeper
//   - s3lock: a bucket of S3
//   - quorumlock: a majority of several stores
//   - memlock: memory in one process
//
// Every backend keeps three promises:
//
//   - Order. Every exclusive grant carries a fencing token, larger than that of
//     every earlier grant of the same key.
//   - Honesty. When a lease ends, its context ends with a cause, at the latest at the
//     lease's own deadline, even if the network is dead.
//   - Fencing. A resource can refuse a late holder: it stores the token with the
//     data, and refuses a smaller one.
//
// # A tour
//
// Make one Client per store and process:
//
//	client, err := fencelock.New(redislock.New(rdb, nil), nil)
//	defer client.Close()
//
// Run a function under a lock. The context that the function gets ends with the lease:
//
//	err = client.Do(ctx, "nightly", func(ctx context.Context, l *fencelock.Lease) error {
//		return report(ctx, l.Token())
//	})
//
// Client.Lock holds a lock over several calls, until Lease.Release.
//
// The Client renews the lease in the background until its release.
//
//   - TryLock does not wait. Wait bounds the waiting.
//   - RLock shares a key, and Acquire counts permits.
//   - LockAll takes several keys without deadlock.
//   - Once runs a function once per slot of time.
//   - MaxHold and MinHold bound how long a lock is held. With NoRenewal
//     only Lease.Renew extends it; with Progress the Client renews it only while the work
//     calls Lease.Tick.
//   - A call that would wait for itself returns ErrDeadlock. With Reentrant the call
//     shares the lease that its context already holds.
//
// # The line
//
// Each key has one line of claims, in order of arrival. A claim is granted when its
// weight and the weights of all live claims before it fit. A writer needs the whole
// line, readers share the line, and the permits of a semaphore add up. So neither
// writers nor readers starve, and tokens follow the order of grants. A waiter is a
// claim with a lease of its own, so a dead waiter leaves the line by itself.
//
// Goroutines of one Client that want the same key exclusively queue inside the
// process. They share one claim in the store's line, and most of their grants cost no
// round trip. Options.HandOff bounds how long other processes wait for them. HandOff 1
// switches this off.
//
// # Caveats
//
// Some limits are those of every lock service, and some are of this one:
//
//   - A lock cannot stop a holder. A process may be paused by a stop signal, a garbage
//     collection or a migrating virtual machine. It may then act after its lease has
//     ended, before it looks at its context. Only the resource can refuse such a write,
//     by the token.
//   - Work that does not look at lease.Context() does not stop when the lock is lost.
//   - Exclusion lasts as long as the store remembers. A Redis without persistence may
//     restart, or a replica may be promoted before it received the last grant. The store
//     may then grant again, while the old holder continues for up to a TTL. Tokens still
//     rise as far as the servers' clocks agree, because the clock seeds them.
//   - The store's clock and the client's both measure a lease. They may show different
//     times, and may differ in rate by a hundredth.
//   - A lost lock undoes nothing: earlier writes stay written.
//   - Fairness is between claims. With HandOff greater than 1, a process with many
//     waiting goroutines gets as many turns as a process with one, HandOff grants at a
//     time.
//   - The tokens of readers and of semaphore holders order nothing.
//   - A SQLite file locks for one host only, and must not be on a network file system.
//   - On macOS the clock stops while the machine sleeps. A laptop that wakes up believes
//     in its lease for the time that was left when it fell asleep.
package fencelock
