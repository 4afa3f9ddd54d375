// Package history records what the users of a lock saw, and judges it.
//
// A history is a list of events from any number of processes, stamped with one
// monotonic clock. [Check] goes through it once, in the order of time, and reports
// every breach of the rules that a lock must keep:
//
//	I1   exclusion    exclusive beliefs of a key never overlap
//	I2   tokens       tokens of exclusive grants rise in the order of the grants
//	I2b  fence        the resource never accepts a write of an earlier grant after that of a later one
//	I5   stuck lock   when a holder is gone, a live waiter is granted within its lease and an allowance
//	I6   wake-up      when a holder has released, a live waiter is granted soon
//	I9   re-entrancy  a grant with n handles ends with the n-th release, and not before
//	I10  read-write   a writer is alone
//	I11  semaphore    the weights held never exceed the size
//
// Safety is stated on what a process believes: from the moment its call returned
// with the lock to the moment it calls Release, sees its loss, or crashes. Progress
// is stated on what it waits for.
//
// # What is not judged
//
// Overlaps of a process that was stopped are not: it believes something old without
// having had a chance to look. Its writes are judged by I2b. Once it says again that
// it holds the lock, with a Believe of a handle that it has, its overlaps count
// again. A history that tells exactly how long each belief is known, with Doubt at its
// end, is judged without such exemptions: see Options.Exact.
//
// The gaps of I5 and I6 are looked for while nobody at all believes to hold the key.
// A reader that waits beside other readers, or permits that would still fit, are not
// missed. Whether writers or readers starve is not judged either, nor how many permits fit
// beside the readers of the same key.
package history
