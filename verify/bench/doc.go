// Package bench compares fencelock with other lock libraries and with the least
// that a lock can cost, on one machine and in one run.
//
// # What makes it fair
//
// A round gives each library one short turn, in an order that each round draws anew, so
// that a neighbour on the machine disturbs all of them, and none of them always has the
// same one before it. What is printed is the median over the rounds, and a ratio is the median of the ratios
// within each round: of all numbers here, the ratios are those to trust.
//
// The libraries of a case keep their locks in one server, started for it on the loopback
// device and as durable as it is by default: Redis without persistence, the others with
// each answer on the disk. They use the same leases and the clients' own default
// settings. A library whose own settings matter is here with its default one and with
// the best one we know.
//
// What is held between lock and unlock is a guard that nobody else may enter: a
// second visitor, or a fencing token that does not rise, is counted in every case,
// and a run that saw either of fencelock fails. Requests are taken from the server's own
// counters; what scripts call inside the server is no request.
//
// # Floors
//
// A floor is what raw commands through the same client cost. It is no lock that one
// could use.
//
// # Adding a library
//
// An adapter is a function that opens a Locker, and a line in the list in peer.go. A case
// is a function with a line in the list in bench.go, its columns are in tables.go, what is
// to be reached in targets.go, and what is drawn in figures.go.
package bench
