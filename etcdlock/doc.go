// Package etcdlock keeps fencelock's lines of claims in etcd, through the client
// that the program already has.
//
//	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:2379"}})
//	…
//	locks := fencelock.New(etcdlock.New(etcd, nil), nil)
//
// # Cost
//
// A free lock costs one transaction, and its release another. To join a line that is not
// empty takes two. A waiter costs two reads and one watch, on the claim that blocks it,
// about every second, and a read and a transaction when it is granted. Renewal of up to a
// thousand claims costs one keep-alive, and one read for every hundred of them that proves
// that each claim's own key is still there.
//
// A Backend has one etcd lease for each TTL in use, in whole seconds. It is granted with
// the first claim, shared by all claims of that TTL, and revoked by Close if it holds no
// key.
//
// # Server
//
// etcd 3.4 or newer. The user needs readwrite permission for all keys that begin
// with Options.Prefix, and no more:
//
//	etcdctl role grant-permission locks --prefix=true readwrite fencelock/
//
// A client that logs in with a password to a server older than 3.5 needs the dial option
// [Relogin], or loses its locks when the server restarts.
//
// Give the client a DialKeepAliveTime: it finds a member that hangs.
//
// # Caveats
//
// Leases are whole seconds, and a server grants none shorter than one and a half
// of its election timeouts: 2 seconds unless it is configured otherwise. The
// ticket says what was granted. A lingering claim lasts that long at the least.
//
// A change of leaders starts every lease again, for only the leader counts them.
// A crashed holder's lock is free after its lease, or after lease, election and
// lease at the worst. The server looks for ended leases twice a second.
//
// Tokens are made of the store's revision. They rise as long as the cluster keeps
// its data. After a restore from a snapshot they rise only if the revision was
// raised beyond all that were handed out: use etcdutl snapshot restore
// --bump-revision --mark-compacted.
//
// Like every write to etcd, each claim stays in the store's history until the history is
// compacted. Start the servers with --auto-compaction-retention.
//
// A user who may read the keys can see the IDs of the claims, and an ID is the right to
// release its claim.
package etcdlock
