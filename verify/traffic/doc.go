// Package traffic uses locks from many processes at once and writes down what each of
// them saw.
//
// A worker is a process of its own, for a goroutine cannot be stopped or killed alone:
// the program that runs the torture, started again with an [Order] in its environment.
// It holds several views of one lock service, each with several users, and each user
// does one thing after another on keys that all workers share:
//
//	mutex      Lock, TryLock, waits that are bounded or cancelled, renewals, breaks
//	rw         readers and writers
//	sem        one or two permits of three
//	reentrant  a lock taken again under its own context
//	set        read, think, write of a set under the lock; the resource takes every write
//	guard      the same, and the resource checks the token
//
// Each user writes one line before and one after each operation (see [Line]), each
// with one write(2), so a kill -9 loses none. Lines are stamped with CLOCK_MONOTONIC,
// which all processes of a machine share.
//
// # What a line proves
//
// A belief is written down only as far as it can be proven: the clock is read first,
// then the lease is asked whether it is held, and only if it says so the stamp counts.
// Whatever happens between the two, a stop included, the lease was held at that stamp
// in the eyes of its library. A checker needs no allowance for scheduling then.
//
// # Locks of others
//
// Anything that implements [Locks] can be tortured, also a lock that is not ours; a
// backend of package driver becomes one with [OnBackend]. Give it a name in a [Table].
package traffic
