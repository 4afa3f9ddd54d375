// Package bench compares fencelock with other lock libraries and with the raw cost of
// each store, on one machine and in one run.
//
// # Fairness
//
// A round gives each library one short turn, in an order that the round draws anew. A
// value is the median over the rounds; a ratio is the median of the ratios within each
// round. Ratios are the numbers to trust.
//
// The libraries of a case share one server, started for it on the loopback device and as
// durable as it is by default. They use the same leases and their clients' default
// settings. A library whose own settings matter takes part with its default and with the
// best one we know.
//
// A guard is visited under every lock. It counts a second holder, or a token that does not
// rise; a run in which fencelock causes either fails.
//
// A floor is raw commands through the same client. It is no lock that one could use.
//
// # Adding a library
//
// Write a function that opens a Locker, and add a line to the list in peers.go. Cases are
// in cases.go, columns in tables.go, targets in targets.go.
package bench
