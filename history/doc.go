// Package history keeps in the store who held each key, how long they waited and held it, how it
// ended, and who broke it and why.
//
//	recorder, err := history.New(backend, nil)
//	client, err := fencelock.New(backend, &fencelock.Options{OnEvent: recorder.OnEvent})
//	...
//	entries, err := history.Read(ctx, backend, "orders/42", 50)
//
// A lock and its release send the same requests as without a history. SQL databases, Redis and
// memory keep one. Transaction locks are not in it.
package history
