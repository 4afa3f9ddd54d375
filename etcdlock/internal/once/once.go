// Package once sends requests for leases once. clientv3 repeats them until their context ends, while a server has no
// leader or, without a pause, while it cannot be reached, and does not say why.
package once

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Grant returns a new lease.
func Grant(ctx context.Context, etcd *clientv3.Client, seconds int64) (clientv3.LeaseID, error) {
	answer, err := pb.NewLeaseClient(etcd.ActiveConnection()).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: seconds})
	return clientv3.LeaseID(answer.GetID()), clientv3.ContextError(ctx, err)
}

// KeepAlive starts a lease again, and returns its length, or ErrLeaseNotFound.
func KeepAlive(ctx context.Context, etcd *clientv3.Client, id clientv3.LeaseID) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewLeaseClient(etcd.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	_ = stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}) // if this fails, Recv says why
	answer, err := stream.Recv()
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	if answer.GetTTL() <= 0 {
		return 0, rpctypes.ErrLeaseNotFound
	}
	return time.Duration(answer.GetTTL()) * time.Second, nil
}
