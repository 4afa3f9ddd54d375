// Package etcdlock keeps fencelock's lines of claims in etcd, through the client
// that the program already has.
//
//	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:2379"}})
//	…
//	locks, err := fencelock.New(etcdlock.New(etcd, nil), nil)
//
// # Cost
//
// A free lock costs one transaction, and its release another. Joining a line that is
// not empty takes two transactions. About every second a waiter costs two reads and
// one watch, on the claim that blocks it. Its grant costs one read and one transaction.
// A renewal of up to a thousand claims costs one keep-alive, and one read for each
// hundred claims. The read proves that each claim's own key still exists.
//
// Detach and Adopt cost two round trips each: a read and a new lease, and a transaction. A
// detached claim has a lease of its own, and so has an adopted one. Each renewal of such a
// claim costs one more read and a keep-alive. To release it by its handle costs two
// transactions.
//
// A Backend has one etcd lease for each TTL in use, in whole seconds. The first claim of
// a TTL creates the lease, and all claims of that TTL share it. Close revokes the lease
// if it holds no key.
//
// # Server
//
// The server must be etcd 3.4 or newer. Versions 3.5 and 3.7 are tested. The user needs
// readwrite permission for all keys that begin with Options.Prefix, and no more:
//
//	etcdctl role grant-permission locks --prefix=true readwrite fencelock/
//
// A client that logs in with a password to a server older than 3.5 needs the dial
// option [Relogin]. Without Relogin the client loses its locks when the server restarts.
//
// Give the client a DialKeepAliveTime, so that it detects a member that hangs.
//
// # Caveats
//
// Leases are whole seconds. A server grants no lease shorter than one and a half of
// its election timeouts: 2 seconds by default. The ticket says which lease was
// granted. A lingering claim lasts at least that long.
//
// A change of leaders restarts every lease, because only the leader counts leases. A
// crashed holder's lock is free after its lease. In the worst case the lock is free
// after one lease, the election and another lease. The server looks for ended leases
// twice a second.
//
// Tokens come from the store's revision. They rise as long as the cluster keeps its
// data. After a restore from a snapshot they rise only if the restore raised the
// revision beyond all earlier tokens: use etcdutl snapshot restore
// --bump-revision --mark-compacted.
//
// Each claim stays in the store's history until the history is compacted, like every
// write to etcd. Start the servers with --auto-compaction-retention.
//
// A user who may read the keys can see the claim IDs. A claim ID is the right to
// release its claim.
package etcdlock
