package etcdlock

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/etcdlock/internal/reply"
)

// Three outcomes: the step may have happened; the server refused it for now; it will never do it.
func TestServerErrorsSayWhatBecameOfTheStep(t *testing.T) {
	b := New(clientv3.NewCtxClient(t.Context()), nil)
	for _, tt := range []struct {
		err              error
		refused, forGood bool
	}{
		{rpctypes.ErrNoLeader, true, false},
		{rpctypes.ErrNoSpace, false, false}, // a server that finds out as it applies a put has applied it
		{rpctypes.ErrLeaderChanged, true, false},
		{rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner), true, false},
		{rpctypes.ErrInvalidAuthToken, true, false},
		{status.Error(codes.Unknown, "raft proposal dropped"), true, false},
		{rpctypes.ErrTooManyRequests, true, false},
		{unsure(rpctypes.ErrNoLeader), false, false}, // the claim was put by the request before
		{rpctypes.ErrTimeoutDueToLeaderFail, false, false},
		{rpctypes.ErrStopped, false, false},
		{errors.New("connection refused"), false, false},
		{rpctypes.ErrAuthFailed, true, true},
	} {
		err := b.explain(context.Background(), reply.Write, "entering the line of", "key", tt.err)
		if errors.Is(err, driver.ErrRefused) != tt.refused || errors.Is(err, driver.ErrPermanent) != tt.forGood ||
			!errors.Is(err, tt.err) {
			t.Errorf("%v became %#v; want refused %v, for good %v", tt.err, err, tt.refused, tt.forGood)
		}
	}
}
