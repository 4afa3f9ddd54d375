// Package zklock keeps fencelock's lines of claims in ZooKeeper.
//
//	b := zklock.New([]string{"zk1:2181", "zk2:2181", "zk3:2181"}, nil)
//	defer b.Close()
//	locks := fencelock.New(b, nil)
//
// # Cost
//
// A free lock costs one request, a write, and so does its release. There is one more, a
// write before it, if this Backend has not used the lock for a minute: it makes the
// container of its claims. A claim that waits costs five reads more: of the line and its
// first claim as it joins, two with a watch, and of the line when it is woken. It costs
// nothing while nothing changes, but two reads every ten seconds. A renewal is one
// transaction for all claims of the Backend, a thousand at a time, and proves that the
// session lives and that each claim's node is there.
//
// The client of github.com/go-zookeeper/zk connects, keeps the session, and pings.
//
// # Leases
//
// All claims of a Backend live in its one session. A lease lasts two thirds of the
// session timeout that the server has granted, at most: a ticket says how long. A
// shorter lease is kept by the client, which deletes the node when it is over. So a
// process that crashes, or is cut off, keeps its locks for as long as the session,
// whatever their TTL; see Options.SessionTimeout. Where its requests still arrive and the
// server's answers are lost, the session ends up to one lease later. After an election the
// ensemble counts all sessions anew: a crashed holder's lock may be taken for one session
// timeout, the election, and another session timeout.
//
// A broken connection is no loss. The holder is at risk, and lost at its own
// deadline, whatever the server says later. When the session has expired, all claims
// are gone, and the next call begins another session.
//
// # Tokens
//
// A token is the czxid of the claim's node, the transaction that made it, times 65536. So
// tokens rise for as long as the ensemble keeps its data; an ensemble that is set up
// anew, or restored from a backup, begins below. They pass 2^53: compare them as
// 64-bit integers. Past leader epoch 32767 they run out, which is an error.
//
// # Server
//
// ZooKeeper 3.5.3 or newer, for container nodes. What is left behind is the Prefix
// with three nodes, and the marks of Once, one node with its container each. The server
// clears away the container of a claim that has left, or crashed, within a minute or so
// (znode.container.checkIntervalMs). A Backend leaves at most 1024 of them; beyond that they
// go with their last claims. What another version wrote is refused.
//
// # Caveats
//
// MinHold is refused: a claim cannot count on after its process has ended (see
// [Backend.Info]). A claim that finds, as it joins, that claims of the other kind have
// joined before it at the same moment, takes its node out again: for that moment others
// may see it. Whoever lists a line sees the longest that leases may last, for only the
// holder knows what is left of them.
package zklock
