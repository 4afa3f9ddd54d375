// Package redislock keeps fencelock's lines of claims in Redis: one server,
// Sentinel or Cluster. It uses the go-redis client that the program already has.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
//	locks, err := fencelock.New(redislock.New(rdb, nil), nil)
//
// # Cost
//
// A free lock costs one request, and so does its release. A waiter costs one
// request when it joins, none when it is granted, and about one a second while it
// waits. Requests that many goroutines make at the same time go out together, and one
// script takes, releases or renews many locks, except in a Cluster. A key that goroutines
// of one process want all the time costs one request for each Options.HandOff of them.
//
// Requests use the pool of the program's client. If commands of the program have all of its
// connections, as BLPOP and WATCH may for long, renewals open up to two of their own.
//
// # Server
//
// The server must be Redis 5.0 or newer, or Valkey, with scripts and PUBLISH. This
// package is tested with Redis 7.0 and 8.0, with 6.0 except for Sentinel, and with
// Valkey 9.1. All keys of a lock are in one hash slot of a Cluster. Scripts read only
// the server's clock. The comment of [New] lists the rights that the user needs.
//
// # Sentinel and Cluster
//
// A call is retried for up to one lease during a failover or a move of a hash slot, and
// while a node loads its data or cannot be reached. A held lock is renewed at the new
// master, and a waiter keeps its position there. Data that the old master had not
// replicated is lost, and the next renewal tells the holder.
//
// Leases should be longer than a failover, and several times the client's ReadTimeout,
// because the client waits that long when a master hangs. Lock state is never read from a
// replica.
//
// A replica whose replica-read-only is no takes writes, and grants locks that its master
// knows nothing of. So a Backend asks a server for its role, by HELLO, which needs no right:
// before its first request, after a connection broke, and otherwise once a second while there
// are requests. A replica is refused, by a permanent error if the server has not been a master
// before. For up to a second after REPLICAOF a former master that takes writes may still grant
// a lock; its next renewal is refused. Redis before 6.2, and a proxy that does not know HELLO,
// do not report a role: do not connect a client to a replica there. Replicas of a Cluster
// redirect to their masters, and the scripts of a member of a quorum ask for the role.
//
// A manual failover (CLUSTER FAILOVER) that fails keeps a master from taking writes
// for five seconds, so leases should be longer. On Redis 7.0, two failovers within four
// times cluster-node-timeout (a minute by default) succeed, and a third may fail.
//
// While a hash slot moves, a free lock in it can be taken, renewed and released, and a
// line of several claims continues. The first waiter behind a single holder can join
// when the slot has arrived.
//
// PUBLISH announces grants, and a Cluster passes each message on to all of its nodes. So
// one subscription per process serves all slots. A lock without waiters costs no message.
//
// # Caveats
//
// A promoted replica may not have the last grants. A server without persistence loses
// all grants when it restarts. Two holders may then exist at once. Their tokens still
// rise, as far as the clocks of the servers agree. So a resource that checks tokens is
// safe, and the next renewal tells the first holder. Options.Replicas makes this less
// likely, but does not exclude it. A server that evicts keys (any maxmemory-policy but
// noeviction) may lose any lock.
package redislock
