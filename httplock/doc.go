// Package httplock serves the locks of a fencelock.Client over HTTP, for programs in any
// language. Command fencelock serve is this package with flags; a Go program mounts it:
//
//	locks, err := httplock.New(client, nil)
//	mux.Handle("/locks/", http.StripPrefix("/locks", locks))
//
// A lease belongs to its handle, not to the process that granted it, so a Server keeps no
// state: any number of them serve one store, behind any balancer. Where the store cannot pass
// leases on (ZooKeeper, a quorum), the Server that granted a lease keeps it, and the others
// answer 421 with its address.
//
// The routes are those of docs/http.md and of the OpenAPI document at /v1/openapi.json. A
// request that is repeated with the same request_id, after a lost answer for example, is the
// same claim: it keeps its place in line, or has the same grant.
//
// # Security
//
// Without Options.Tokens everybody who reaches the Server may take, see and break every lock.
// Server answers only to Host names that it knows, and to no script of another site. Serve it
// through HTTPServer, which bounds headers and slow connections.
package httplock
