// Package elect chooses one leader among the processes that campaign for a key. The
// holder of the key's lock leads. The other processes stand in line and take over in
// order of arrival. When the leader steps down, the next one leads within
// milliseconds. When the leader crashes or is cut off, the next one leads within the
// lease (Options.TTL of the Client).
//
//	e := elect.New(locks, "reports", nil)
//	err := e.Run(ctx, func(ctx context.Context, l *fencelock.Lease) error {
//		return sendReports(ctx, l.Token()) // until ctx ends
//	})
//
// # Caveats
//
// Leadership is a lease, and no lease can stop a paused process. For a moment two
// processes may both believe that they lead. Guard the leader's writes with its
// token; see package fence.
package elect
