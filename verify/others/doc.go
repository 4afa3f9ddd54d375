// Package others puts locks of other libraries, and those of fencelock beside them, through
// the same schedules on real servers, and writes down what was seen from outside.
//
// # Adapters
//
// A lock is a process that takes the server's HOST:PORT as its last argument, and speaks
// lines on its standard input and output. It connects, and then says
//
//	ready VERSION
//
// It answers each request with one line:
//
//	lock KEY TTL_MS            waits:                held [TOKEN], refused, error TEXT
//	lock KEY TTL_MS WAIT_MS    gives up by itself:   the same
//	unlock                                           released, lost, error TEXT
//
// "refused" means that somebody else has the lock. TOKEN is a number that a resource can
// compare. "lost" answers an unlock of a lock that was not held any more. Between the
// answers it says, unasked, what the library tells the holder of a lock:
//
//	told TEXT                  the lock is lost
//	doubt TEXT                 the lock may be lost: stop, as the documentation demands
//
// Each line is written at once. The process ends with its standard input. An adapter uses its
// library as the README of the library shows it, with the library's own defaults.
package others
