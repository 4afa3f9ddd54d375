// Package redislock keeps fencelock's lines of claims in Redis: one server,
// Sentinel or Cluster, through the go-redis client that the program already has.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
//	locks := fencelock.New(redislock.New(rdb, nil), nil)
//
// # Cost
//
// A free lock costs one request, and so does its release. A waiter costs one
// request when it joins, none when it is granted, and about one a second while it
// waits. One script renews up to 200 locks. Requests that many goroutines make at
// the same time go out together as pipelines. A key that goroutines of one process
// want all the time costs one request for each Options.HandOff of them.
//
// # Server
//
// Redis 5.0 or newer, or Valkey, with scripts and PUBLISH. This package is tested
// with Redis 7.0 and 8.0, with 6.0 except for Sentinel, and with Valkey 9.1. All
// keys of a lock are in one hash slot of a Cluster. Only the server's clock is read.
// The comment of [New] lists the rights that the user needs.
//
// # Sentinel and Cluster
//
// A call is tried again until a lease has run out while a failover goes on, a hash
// slot moves, or a node loads or cannot be reached. A lock that is held is renewed at
// the new master, and a waiter keeps its position there. What the old master had not
// replicated is lost, and the next renewal tells the holder so.
//
// Leases should be longer than a failover takes. Behind Sentinel they should also be
// several times the client's ReadTimeout, which the client waits for when a master
// hangs. A master of a Cluster that hangs costs half a second more than one that dies:
// its commands are then tried at its replica. Lock state is never read from a replica.
//
// A manual failover (CLUSTER FAILOVER) that fails keeps a master from taking writes
// for five seconds: leases should be longer. On Redis 7.0, two failovers within four
// times cluster-node-timeout (a minute by default) succeed, and a third may fail.
//
// While a hash slot moves, a free lock in it can be taken, renewed and released, and a
// line of several claims goes on. The first waiter behind a single holder can join when
// the slot has arrived.
//
// Grants are told by PUBLISH, which a Cluster passes on to all of its nodes: one
// subscription per process serves all slots, and a lock without waiters costs no
// message.
//
// # Caveats
//
// A replica that is promoted may not know of the last grants, and a server without
// persistence forgets all of them when it restarts. Two holders may then meet. Their
// tokens rise even so, as far as the clocks of the servers agree. So a resource that
// checks tokens is safe, and the next renewal tells the first holder.
// Options.Replicas makes this less likely, and does not exclude it. A server that
// evicts keys (any maxmemory-policy but noeviction) may forget any lock.
package redislock
