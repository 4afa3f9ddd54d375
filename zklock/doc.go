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
// container of its claims. A claim that waits costs three reads more: of the line as
// it joins, of the one that it waits for, with a watch, and of the line when it is
// woken. With two to four ahead it asks once more, who is first; and one that waits for
// a quarter of a second watches its own node, too, and asks who is first in a longer
// line. It costs nothing while nothing changes, but a read every ten seconds. A
// renewal is one write for all claims of the Backend, a thousand at a time, and proves
// that the session lives and that each claim's node is there.
//
// The client of github.com/go-zookeeper/zk connects, keeps the session, and pings.
// It knows no contexts: a goroutine waits for each request, and goes on waiting when the
// call has ended with its context.
//
// # Leases
//
// All claims of a Backend live in its one session. A lease lasts two thirds of the
// session timeout that the server has granted, at most: a ticket says how long. A
// shorter lease is kept by the client, which deletes the node when it is over. So a
// process that crashes, or is cut off, keeps its locks for as long as the session,
// whatever their TTL; see Options.SessionTimeout. Where its requests still arrive and the
// server's answers are lost, the session ends up to one lease later: the server hears
// of the session until the client gives it up, which it does when its leases are over. After an election the ensemble
// counts all sessions anew: a crashed holder's lock may be taken for one session
// timeout, the election, and another session timeout.
//
// A broken connection is no loss. The holder is at risk, and lost at its own
// deadline, whatever the server says later. When the session has expired, all claims
// are gone, and the next call begins another session.
//
// # Tokens
//
// A token is the ZooKeeper transaction that made the claim's node, times 65536. So
// tokens rise for as long as the ensemble keeps its data; an ensemble that is set up
// anew, or restored from a backup, begins below. They pass 2^53: compare them as
// 64-bit integers. Past leader epoch 32767 they run out, which is an error.
//
// # Server
//
// ZooKeeper 3.5.3 or newer, for container nodes. What is left behind is the Prefix
// with three nodes, and the marks of Once, one node with its container each. The
// container of a claim that has left, or crashed, is cleared away by the server within a
// minute or so (znode.container.checkIntervalMs), so that whoever takes a lock again and
// again does not make it each time. A Backend leaves at most 1024 of them; beyond that they
// go with their last claims. Everything is written as version 1, and
// what another version wrote is refused.
//
// # Caveats
//
// MinHold is refused: a claim cannot count on after its process has ended (see
// [Backend.Info]). A claim that waits and finds, as it joins, that claims of the
// other kind have joined before it at the same moment, takes its node out again:
// for that moment others may see it. Whoever lists a line sees the longest that
// leases may last, not what is left of them, for nobody but the holder knows.
package zklock
