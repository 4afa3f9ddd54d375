// Package fence is the last door: it lets a resource refuse a writer whose lock
// has passed to somebody else.
//
// No lock can stop a holder that is paused. Its process may be stopped, or its
// machine suspended, between the moment it looked at its lease and the moment its
// write arrives; by then the lease is over, the lock has a new holder, and two
// write. So every exclusive grant carries a [Token], larger than those of all
// grants of that key before it, and the resource remembers the largest token it
// has seen. A write with a smaller one is refused with [ErrStale].
//
// The comparison must be one atomic step with the write. That is what the guards
// of this package are for:
//
//   - [Rows] for a SQL table that can have a column for the token: the comparison
//     is part of the UPDATE.
//   - [Table] for SQL writes to tables that cannot: a row of its own, advanced in
//     the transaction that writes.
//   - [Handler] and [Transport] for an HTTP service and its callers.
//   - [Gate] and [Gates] for what lives in one process, or is reached through one.
//
// Guards for data in Redis, etcd and ZooKeeper are in packages redislock, etcdlock and
// zklock.
//
// # Rules that hold for every guard
//
// A token that was seen before is let in again: a holder writes many times. Only
// a smaller one is stale. Among the writes of one token no guard knows an order;
// that is up to their holder.
//
// A resource is guarded by the lock of one key, and every write to it must go
// through the guard. Tokens of two keys have nothing to do with each other.
//
// A token is worth something only if the grant was exclusive. Readers, and
// holders of a semaphore, share the line; their tokens order nothing.
//
// Zero is no token. A guard that is given zero or less answers [ErrNoToken] and
// lets nothing in.
//
// Guards do not make a failed write whole: what a holder wrote before it lost the
// lock stays written. Let a piece of work be one write, or one transaction.
package fence
