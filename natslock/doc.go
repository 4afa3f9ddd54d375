// Package natslock keeps locks in a key-value bucket of NATS JetStream, through a connection of yours:
//
//	nc, err := nats.Connect("nats://localhost")
//	js, err := jetstream.New(nc)
//	client, err := fencelock.New(natslock.New(js, nil))
//
// It keeps all laws of package driver. A free lock costs two requests, one to take it and one to leave it;
// a lock that another process has held since costs two more to take. Clients that wait hear of their grants by a
// message. A client far from the leader of the stream gets its share: see swaplock.Messenger.
//
// The bucket is made when it is not there, with three replicas in a cluster. Its keys are
// "line.KEY", one for each lock, and for some time "lease.KEY.NAME" and "note.KEY.NAME". A byte of KEY that is
// not a letter, a digit, "_", "-" or "/" is "=" and two hexadecimal digits. `nats kv get --raw fencelock line.KEY`
// shows who holds a lock, as JSON.
//
// It needs NATS 2.10 or newer with JetStream, and was tested with 2.15.
//
// # What is lost
//
// A NATS server acknowledges a write before it is on the disk, and syncs every two minutes by default
// (sync_interval). After a power cut, or if the majority of the servers of a bucket lose their disks, the server
// may come back without writes that it has acknowledged: a lock that is held can be granted again. Set
// "sync_interval: always" for a bucket of one replica. With three replicas, servers in three places rarely
// fail at once. The process of a server may be killed at any time: the operating system keeps what is written.
// Tokens rise in each case, because they are at least the time in µs, so a resource that checks them
// refuses the old holder.
//
// Leases end by the clock of the leader of the stream. Keep the clocks of the servers within a small part of
// the shortest TTL: a new leader whose clock is ahead by a second ends leases a second early.
//
// # Rights
//
// A client publishes to $KV.BUCKET.>, $JS.API.STREAM.INFO.KV_BUCKET, $JS.API.STREAM.MSG.GET.KV_BUCKET,
// $JS.API.STREAM.PURGE.KV_BUCKET and fencelock.BUCKET.news, and subscribes to the last and to _INBOX.>. To
// make the bucket takes $JS.API.STREAM.CREATE.KV_BUCKET.
package natslock
