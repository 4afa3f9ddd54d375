// Package etcdlock keeps fencelock's lines of claims in etcd, through the client
// that the program already has.
//
//	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:2379"}})
//	…
//	locks := fencelock.New(etcdlock.New(etcd, nil), nil)
//
// # Cost
//
// A free lock costs one transaction, and its release one delete. Whoever comes first where
// somebody else is in line by now, or a mark is kept, asks once in vain. A waiter costs one
// transaction when it joins, one watch on what stands in its way, one transaction
// when it is granted (two for readers and semaphores), and one read about every
// second while it waits. A lock that is refused costs one transaction; a try on a
// semaphore that is partly taken costs two. Renewal of up to a thousand claims
// costs one keep-alive and one read for every hundred of them, and proves that each
// claim's own key is still there.
//
// A Backend has one etcd lease for each length of lease that is asked for, in
// whole seconds. It is granted with the first claim, shared by all claims of that
// length, and revoked by Close if nothing hangs on it.
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
// Give the client a DialKeepAliveTime: a member that hangs is found out by that, and
// not by its silence.
//
// # Caveats
//
// Leases are whole seconds, and a server grants none shorter than one and a half
// of its election timeouts: 2 seconds unless it is configured otherwise. The
// ticket says what was granted. A lingering claim lasts that long at the least.
//
// The client may send a write once: so do clients as clientv3 makes them. One whose dial
// options have gRPC repeat what failed, or a proxy that does, may send the delete of a release
// twice, and the second may end the next lock of the same key and process. Its holder is told
// by the next renewal, and a guard refuses its token once another has been seen.
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
// Each claim leaves a little in the store's history, as everything does that is written to
// etcd, until that is compacted: have the servers do so, by --auto-compaction-retention.
//
// Whoever may read the keys can see the ids of the claims, which are the right to
// leave.
package etcdlock
