// Package redislock keeps fencelock's lines of claims in Redis: one server,
// Sentinel or Cluster, through the go-redis client that the program already has.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
//	locks := fencelock.New(redislock.New(rdb, nil), nil)
//
// # Cost
//
// A free lock costs one request, and so does its release. A waiter costs one
// request when it joins, none when it is granted, and one about every second
// while it waits. Renewal of many locks goes in scripts of some 200. Requests of
// many goroutines at the same time go out together as pipelines. A key that goroutines of
// one process want all the time costs one request for each Options.HandOff of them.
//
// # Server
//
// Redis 5.0 or newer, or Valkey, with scripts and PUBLISH; this package is tested with Redis
// 7.0 and 8.0, with 6.0 but for Sentinel, and with Valkey 9.1. All keys of a lock are in one
// slot of a Cluster. Only the server's clock is read. What the ACL of the user
// must allow is in the comment of [New].
//
// # Sentinel and Cluster
//
// A failover, a slot that moves, a node that loads or cannot be reached are carried
// until a lease has run out: a call is tried again, a lock that is held is renewed at
// the new master, and who waits has its place there. What the old master had not passed
// on is lost, and whoever held it is told by its next renewal. Choose leases that are
// longer than a failover takes; behind Sentinel also several times the ReadTimeout of the
// client, for which it waits when a master hangs rather than dies. A master of a Cluster
// that hangs costs half a second more than one that dies: what it does not answer is
// tried at its replica, which takes it once it has been promoted. Lock state is never read
// from a replica.
//
// A hand-over by hand (CLUSTER FAILOVER) that does not come through keeps a master from
// taking writes for five seconds: leases should be longer. Redis 7.0 lets it fail if the
// replica was itself promoted less than four times cluster-node-timeout ago, a minute by
// default: over and back is well, and over once more is not.
//
// While a slot moves a free lock in it can be taken, renewed and released, and a line
// of several goes on; who comes second to a single holder has its place when the slot
// has arrived.
//
// Grants are told by PUBLISH, which a Cluster passes on to all of its nodes: one
// subscription per process serves all slots, and a lock without waiters costs no
// message.
//
// # Caveats
//
// A replica that is promoted may not have heard of the last grants, and a server
// without persistence forgets all of them when it restarts: two holders may then
// meet. Their tokens rise even so, as far as the clocks of the servers agree, so
// a resource that checks tokens is safe, and the first is told by its next renewal.
// Options.Replicas makes it less likely, and does not exclude it. A server that evicts
// keys (any maxmemory-policy but noeviction) forgets locks at will.
package redislock
