// Package quorumlock keeps locks on a majority of independent Redis servers that do not know
// of each other. It is Redlock with a fencing token.
//
//	quorum := quorumlock.New([]driver.Backend{
//		redislock.New(rdb1, &redislock.Options{Member: &ballot.Membership{}}),
//		redislock.New(rdb2, &redislock.Options{Member: &ballot.Membership{}}),
//		redislock.New(rdb3, &redislock.Options{Member: &ballot.Membership{}}),
//	}, nil)
//	client, err := fencelock.New(quorum, nil)
//
// A quorum survives the loss of a minority of its nodes: one of three, two of five. The
// nodes must be independent: replicas of one another fail together.
//
// # The token
//
// The client proposes one number to all nodes, its ballot. The ballot is the larger of
// the client's clock and the largest number that it has seen. A node grants the lock if
// the lock is free there and the ballot exceeds all ballots that the node has granted
// for the key. A claim that a majority grants in time holds the lock, and the ballot is
// its token. Two majorities share a node, and on that node the later grant had the larger
// ballot. So tokens are unique and rise from holder to holder, whatever the clients'
// clocks say. driver.Member describes the node's half. A node that has lost its memory
// grants nothing for as long as that matters.
//
// # One grant, file by file
//
// Enter (enter.go) sends the ballot to all nodes, counts the answers (vote.go), and
// returns at the majority. Requests for one claim reach a node in order (claim.go), on
// goroutines that outlive the call. A failed vote leaves every node again (leave.go).
// Renew (renew.go) puts a live claim back on nodes that have lost it.
//
// # New nodes
//
// A new node looks like a node that has lost its data. So a new quorum grants nothing for
// the MaxTTL of its members, five minutes by default. Initialise ends that wait, once. Call
// it only if no earlier lock can be left:
//
//	err := quorum.Initialise(ctx) // or: fencelock init
//
// # What it does not do
//
//   - It keeps no line, because lines on different nodes could disagree. Who is refused
//     tries again after a random pause, as another claim. So grants follow no order, and a
//     steady flow of readers can starve a writer. A claim that the program has named stays
//     the same: a node that gave it no answer takes no part until its lease would be over.
//   - It keeps no semaphores. On three nodes with a semaphore of two each, three claims can
//     have two nodes each. All three would then hold a permit.
//   - It keeps no marks, so there is no Once. Two majorities may have different marks, and
//     no rule says which mark is right.
//   - Exclusion needs clocks that run at about the same rate, as with every lease. The
//     order of tokens needs the nodes' clocks only after a node has lost its memory, and
//     only within Skew.
package quorumlock
