// Package bridge holds each lock in two stores at once, so that a fleet of programs moves from
// one store to another without a pause in which nothing excludes anything.
//
//	b := bridge.New(redislock.New(…), sqllock.New(…))
//	locks, err := fencelock.New(b, nil)
//
// The fleet moves in three deployments. Programs of two that follow each other exclude one
// another; programs of the first and the third do not, and never run at once:
//
//	        old store       both            new store
//	──────┬───────────────┬───────────────┬──────────────▶
//	  1   │ New(old)      │               │
//	  2   │      bridge.New(old, new)     │
//	  3   │               │ New(new)      │
//
// The way back is the same from right to left. All programs of the second deployment name
// the two stores in the same order: with one that swaps them, two programs may wait for each
// other forever.
//
// # How a lock is held
//
// A claim joins the line of the old store first. When the old store grants it, it joins the
// line of the new store. The lock is held when both have granted it, and lost when either
// has lost it. It is released in the new store first. A program that crashes leaves two
// leases, and both end by themselves.
//
// # The token
//
// The claim draws its token in the old store, on arrival, and asks the new store for the
// same token (driver.Claim.After). Where the new store has given that token or a larger one
// already, it gives the next one. So tokens rise in the order of the old line while programs
// of the first deployment run, and in the order of the new line while programs of the third
// run. A claim has its final token when it is granted: while it waits in the old store, its
// ticket has the token of the old store.
//
// On the way back the old store numbers above the new one, also if its clock is behind: the first
// claim with a larger token from the new store has the old one follow it. An old store without
// driver.Info.After does not.
//
// A key that no program of the second deployment has locked has no token in the new store yet:
// there tokens rise if the clock of the new store is not behind the clock of the old one by more
// than the time between the last program of the first deployment and the first of the third.
//
// # What a bridge does not do
//
// It does not detach leases, and keeps no history: both would outlive the move in one of the
// stores only. A mark (Once) is read from both stores and written to both.
package bridge
