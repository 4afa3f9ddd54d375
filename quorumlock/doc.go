// Package quorumlock keeps locks on a majority of independent stores, none of which
// knows of the others: what is called Redlock when all of them are Redis, with a
// fencing token, and on any mix of stores that take ballots.
//
//	quorum := quorumlock.New([]driver.Backend{
//		redislock.New(rdb1, &redislock.Options{Member: &driver.Membership{}}),
//		redislock.New(rdb2, &redislock.Options{Member: &driver.Membership{}}),
//		redislock.New(rdb3, &redislock.Options{Member: &driver.Membership{}}),
//	}, nil)
//	client := fencelock.New(quorum, nil)
//
// It stands the loss of a minority of the nodes: of one of three, two of five. The
// nodes must be independent: replicas of one another fail together.
//
// # The token
//
// The client proposes one number to all nodes, its ballot: the largest of its own
// clock and of what it has heard. A node grants the lock if it is free there and the
// ballot is above all that it has granted before for the key. Who is granted by a
// majority, in time, holds the lock, and the ballot is the token. Two majorities
// share a node, and on that one the later grant had the larger ballot. So tokens are
// unique, and rise from holder to holder, whatever the clients' clocks say. A node
// keeps its half of this as driver.Member says, and one that has lost its memory
// stays out for as long as that may matter.
//
// # New nodes
//
// A node that is new cannot be told from one that has lost its data. So a new quorum
// grants nothing for the MaxTTL of its members, five minutes if nothing else was
// said, unless it is told once that nothing can be left from before:
//
//	err := quorum.Initialise(ctx) // or: fencelock init
//
// # What it does not do
//
//   - It keeps no line: lines on different nodes could disagree. A claim that is
//     refused asks again after a pause that is drawn at random, so nobody is served in
//     order, and steady readers can starve a writer.
//   - It keeps no semaphores: of three nodes with a semaphore of two each, three
//     claims can have two nodes each. All three would be inside.
//   - It keeps no marks, so there is no Once: two majorities may have different marks,
//     and no rule says which one is right.
//   - Exclusion of holders depends on clocks that run at about the same rate, as with
//     every lease. The order of tokens depends on the nodes' clocks as far as Skew says,
//     and only once a node has lost its memory.
package quorumlock
