// Package fencelock gives a program a lock that holds across machines, on a store
// that is already there: Redis (redislock), PostgreSQL, MySQL and MariaDB or a SQLite
// file on one host (sqllock), etcd (etcdlock), ZooKeeper (zklock), a majority of several
// (quorumlock), or memory in one process (memlock).
//
// Three promises go together on every backend:
//
//   - Order. Every exclusive grant carries a fencing token, larger than that of
//     every earlier grant of the same key.
//   - Honesty. A holder whose lease ends learns it at the latest at its own
//     deadline, by its context, with a cause, even if the network is dead.
//   - Fencing. A token is worth what the resource does with it: write it
//     beside the data, and refuse a smaller one.
//
// # A tour
//
// Make one Client per store and process:
//
//	client := fencelock.New(redislock.New(rdb, nil), nil)
//	defer client.Close()
//
// Run something while holding a lock. The context that f gets ends with the lease:
//
//	err := client.Do(ctx, "nightly", func(ctx context.Context, l *fencelock.Lease) error {
//		return report(ctx, l.Token())
//	})
//
// Or hold it over several calls:
//
//	func ship(ctx context.Context, client *fencelock.Client) (err error) {
//		lease, err := client.Lock(ctx, "orders/42")
//		if err != nil {
//			return err
//		}
//		defer func() { err = errors.Join(err, lease.Release(ctx)) }()
//		ctx = lease.Context()
//		return pack(ctx, lease.Token())
//	}
//
// The error has a name, so that the deferred Release can say that the lock was lost.
//
// The lease is renewed in the background until it is released. TryLock does not
// wait, Wait bounds the waiting, RLock shares, Semaphore counts, LockAll takes several
// keys without deadlock, Once runs something once per slot of time, FixedLease,
// MaxHold and MinHold bound the holding. A call that would wait for itself is
// ErrDeadlock; Reentrant shares what its context already holds instead.
//
// # The line
//
// Each key has one line of claims, in order of arrival. A claim is granted when its
// weight and those of all live claims before it fit: a writer needs the whole line,
// readers share it, permits of a semaphore add up. So nobody starves, neither writers
// nor readers, and the order of tokens is the order of grants. A waiter is a claim
// with a lease of its own: one that dies leaves the line by itself.
//
// Goroutines of one Client that want the same key exclusively queue inside the
// process and share one claim in the store's line; most of their grants cost no
// round trip. Options.HandOff bounds how long other processes wait for that, and 1
// switches it off.
//
// # Caveats
//
// What no lock service can do, and what this one does not:
//
//   - A lock cannot stop a holder. A process that is paused (by a stop signal, a
//     garbage collection, a virtual machine that moves) may act after its lease has
//     ended, before it looks at its context. Only the resource can refuse it: give it
//     the token.
//   - Work that does not look at lease.Context() does not stop when the lock is lost.
//   - Exclusion lasts as long as the store remembers. A Redis that restarts without
//     persistence, or a replica that is promoted before it has received the last grant,
//     may grant again while the old holder goes on for up to a TTL. Tokens still rise,
//     because they are seeded by the clock, as far as the clocks agree.
//   - Leases are measured by two clocks, the store's and ours. They may differ in
//     reading by any amount, and in rate by a hundredth.
//   - A lost lock is not undone: what has been written stays written.
//   - Fairness is between claims. With HandOff greater than 1 a process with many
//     waiting goroutines is served as often as one with a single goroutine, HandOff
//     grants at a time.
//   - The tokens of readers and of semaphore holders order nothing.
//   - A SQLite file locks for one host only, and must not lie on a network file system.
//   - On macOS the clock stops while the machine sleeps: a laptop that wakes up takes
//     its lease for alive for as long as was left when it fell asleep.
package fencelock
