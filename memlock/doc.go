// Package memlock keeps locks in the memory of one process. It needs no server
// and no configuration, and it keeps every law of package driver, so it is also
// the reference that other backends are compared with: the specification that
// you can run.
//
// A Store is to its users what a server is to other backends. Any number of
// Clients may share one Store, and they exclude each other as if they were
// different processes:
//
//	store := memlock.New()
//	a, err := fencelock.New(store, &fencelock.Options{Owner: "a"})
//	b, err := fencelock.New(store, &fencelock.Options{Owner: "b"})
//
// The data lives as long as the Store value. Nothing is written anywhere, and
// other processes see nothing of it.
//
// Time is time.Now and timers, both virtual inside a testing/synctest bubble.
// A Store has no goroutine: it may be dropped without being closed.
package memlock
