// Package fault breaks what locks live on, while they are used: the processes that hold
// them, the network in between, and the stores.
//
// A [Nemesis] goes through faults that are chosen by a seed: which one, when, against
// whom and for how long. What it does is written into the history.
package fault
