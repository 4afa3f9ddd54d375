// Package swaplock keeps locks in any store that can compare and swap. It has the rule of
// package driver and needs eight methods of the store, which is why a store of your own takes
// a day: see Store, and docs/your-own-store.md, which has a whole one.
//
// The line of a key is a document with a version. A step reads the document, applies the rule
// to it, and writes it back if nobody has written it since. If somebody has, the step begins
// anew from what is there now, so nothing of the lost attempt takes effect.
//
// # Where a lease is
//
// A lease is renewed many times and must not cost a swap each time. So it is in one of three
// places:
//
//   - The claim that finds its line empty is the holder of the line, and its lease is next to the
//     document. A renewal leaves the version alone.
//   - A claim that joins behind others has the end of its lease in the document. A wait that
//     is shorter than the time to its first renewal writes nothing more.
//   - From its first renewal on, such a claim has a record of its own, and the document says so.
//     The claim is dead when the record is not there. An arrival stays where it is; it is dead when
//     the record is not there and the time that it arrived with is over.
//
// The store decides each race of a renewal and a purge: a holder is purged only by a swap that
// names the end of the lease that was seen, and a record is removed only if it has ended still.
// Records are made and dropped by the very swap that says so, and a swap lands only while every
// lease lasts that its step has found alive.
//
// # Arrivals
//
// Where others swap all the time, the swaps of a client far from the store come too late. In a
// store that is an Arriver, a claim joins a full line by one request that collides with nothing,
// and the line is the document with the arrivals behind it. Whoever swaps takes the first ones
// into the document, but not more than a few dozen, so that a long line does not make each swap
// long.
//
// Enter of a line that is not full, Leave, and the first renewal are swaps. After a lost one they
// become messages among the arrivals, which the next client to swap does.
//
// # The document
//
// It is JSON that a person reads, with a format number. A process that finds a newer
// format than its own refuses the key by driver.ErrPermanent, and changes nothing.
package swaplock
