// Package elect chooses one leader among the processes that campaign for a key: the
// one that holds its lock. The others stand in line and take over in order of
// arrival, within milliseconds when the leader steps down, and within the lease
// (Options.TTL of the Client) when it crashes or is cut off.
//
//	e := elect.New(locks, "reports", nil)
//	err := e.Run(ctx, func(ctx context.Context, l *fencelock.Lease) error {
//		return sendReports(ctx, l.Token()) // until ctx ends
//	})
//
// # Caveats
//
// Leadership is a lease, and no lease can stop a process that is paused: for a
// moment two may believe that they lead. So let what the leader writes be guarded
// with its token; see package fence.
package elect
