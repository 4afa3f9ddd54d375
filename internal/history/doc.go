// Package history judges what the users of a lock saw.
//
// A history is a list of events of any number of processes, stamped with one monotonic clock.
// [Check] reports every breach of these rules:
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
// A process believes that it holds a lock from the return of its call until it calls Release,
// sees the loss, or crashes.
//
// Overlaps of a stopped process are not judged until it looks again, with a Believe of a
// handle that it has. Its writes are judged by I2b. Options.Exact removes this exemption.
//
// I5 and I6 are judged only while nobody holds the key. Starvation of readers or writers is
// not judged, nor how many permits fit beside the readers of the same key.
package history
