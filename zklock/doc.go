// Package zklock keeps fencelock's lines of claims in ZooKeeper.
//
//	b := zklock.New([]string{"zk1:2181", "zk2:2181", "zk3:2181"}, nil)
//	defer b.Close()
//	locks, err := fencelock.New(b, nil)
//
// # Cost
//
// A free lock costs one write, and its release another. If this Backend has not used
// the lock for a minute, one more write comes first: it makes the container of the
// lock's claims. A claim that waits costs five more reads. As it joins, it reads the
// line and the line's first claim. Two more reads set a watch each. When the claim is
// woken, it reads the line again. While nothing changes, a waiter costs two reads every
// ten seconds.
//
// A renewal is one transaction for up to a thousand claims of the Backend. It proves
// that the session lives and that each claim's node exists and is as it was.
//
// With its first claim a session sets a watch on the records of broken claims, and reads their names
// whenever an operator breaks a claim or gives notice. So a holder hears of it at once. A claim under
// notice is ended by its Backend when the notice is over, or by the server with the session.
//
// # Leases
//
// All claims of a Backend live in its one session. A lease lasts at most two thirds of
// the session timeout that the server granted, and the ticket says how long. For a
// shorter lease the client deletes the node when the lease is over. So a process that
// crashes, or is cut off, keeps its locks until its session ends, whatever their TTL;
// see Options.SessionTimeout. If its requests arrive and the server's answers are
// lost, the session ends up to one lease later. After an election the ensemble restarts
// all sessions. A crashed holder's lock may then stay taken for one session timeout,
// the election, and another session timeout.
//
// A broken connection is not a loss. The holder is at risk, and is lost at its own
// deadline, whatever the server says later. When the session expires, all claims are
// lost, and the next call begins another session.
//
// # Tokens
//
// A token is the czxid of the claim's node times 65536. The czxid is the transaction
// that made the node. So tokens rise as long as the ensemble keeps its data. An
// ensemble that is newly created, or restored from a backup, begins with smaller tokens.
// Tokens exceed 2^53: compare them as 64-bit integers. They run out past leader epoch
// 32767, and a call then returns an error.
//
// # Server
//
// The server must be ZooKeeper 3.5.3 or newer, which has container nodes. Versions 3.8
// and 3.9 are tested. The Prefix with three nodes stays in the store, and so do the marks of Once, each a node in a
// container. When a claim leaves or crashes, the server deletes its container within
// about a minute (znode.container.checkIntervalMs). A Backend leaves at most 1024 such
// containers; it deletes further ones with their last claims. Data of another version of
// this package is refused.
//
// # Caveats
//
// MinHold is refused, because a claim cannot outlive its process (see [Backend.Info]).
//
// A claim may find, as it joins, that claims of the other kind joined before it at the
// same moment. It then removes its node again, and others may see the node for that
// moment.
//
// A listing of a line shows the longest time that its leases may last, because only the
// holder knows what is left.
package zklock
