// Package traffic uses locks from many processes at once and writes down what each of
// them saw.
//
// A worker is a process, so that it can be stopped or killed alone: the program that runs the
// torture, started again with an [Order] in its environment. It has several clients of one
// lock service, and each client has several users. A user does one thing after another on
// keys that all workers share:
//
//	mutex      Lock, TryLock, waits that are bounded or cancelled, renewals, breaks
//	rw         readers and writers
//	sem        one or two permits of three
//	reentrant  a lock taken again under its own context
//	set        read, think, write of a set under the lock; the resource takes every write
//	guard      the same, and the resource checks the token
//
// Each user writes one [Line] before and one after each operation, each with one write(2),
// so a kill -9 loses none. Lines are stamped with CLOCK_MONOTONIC, which all processes of a
// machine share.
//
// A line says that a lease was held only if that is proven: the user reads the clock, then asks
// the lease, and records the time only if the lease is held. A stop between the two changes
// nothing, so a checker needs no allowance for scheduling.
//
// Every implementation of [Locks] can be tortured: name it in a [Table]. [OnBackend] makes
// one of a driver.Backend.
package traffic
