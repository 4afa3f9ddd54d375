// Package fence lets a resource refuse a writer whose lock has passed to another
// holder.
//
// No lock can stop a paused holder. Its process may be stopped, or its machine
// suspended, between its last look at the lease and the arrival of its write. By then
// the lease is over, the lock has a new holder, and both write. So every exclusive
// grant carries a [Token], larger than the tokens of all earlier grants of that key.
// The resource remembers the largest token it has seen, and refuses a write with a
// smaller token. The error is [ErrStale].
//
// The comparison and the write must be one atomic step. The guards of this package
// do that:
//
//   - [Rows] guards a SQL table that can have a column for the token. The comparison
//     is part of the UPDATE.
//   - [Table] guards SQL tables that cannot have such a column. It keeps the token in a
//     row of its own, and advances that row in the transaction that writes.
//   - [RowsOf] and [AdvancePgx] are the same for native pgx, without database/sql.
//   - [Handler] and [Transport] guard an HTTP service, for the service and its callers.
//   - [Gate] and [Gates] guard a resource of one process, or one behind one process.
//
// Guards for data in Redis, etcd and ZooKeeper are in packages redislock, etcdlock and
// zklock.
//
// # Rules that hold for every guard
//
// A guard accepts the largest token again, because a holder writes many times. Only a
// smaller token is stale. No guard orders the writes of one token; their holder does.
//
// A guard refuses the old holder's write only once the new holder's token has reached the
// resource. A holder that writes what it has read shows its token first, then reads, then
// writes: otherwise the old holder may write between the new one's read and its write, and
// that write is lost.
//
//   - SQL: [Table.Advance] at the beginning of the transaction that reads; [Rows] says how a
//     column does it.
//   - Redis: read in the script. etcd and ZooKeeper: a Do without operations shows the token.
//   - [Gate]: read in Do.
//   - HTTP: a GET shows nothing. Begin with a request that changes something, or write on
//     condition of what was read, as with If-Match.
//
// The lock of one key guards a resource, and every write to the resource must go
// through the guard. Tokens of different keys are unrelated.
//
// A token orders writes only if its grant was exclusive. Readers and semaphore holders
// share the line, so their tokens order nothing.
//
// Zero is not a token. For a token of zero or less a guard returns [ErrNoToken] and
// writes nothing.
//
// Guards do not undo an operation that failed. What a holder wrote before it lost the
// lock stays written. Make each operation one write, or one transaction.
package fence
