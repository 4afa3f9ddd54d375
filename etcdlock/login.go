package etcdlock

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
)

// Relogin returns a dial option for clients that log in with a user and a password
// to servers older than etcd 3.5:
//
//	clientv3.Config{Username: …, Password: …, DialOptions: []grpc.DialOption{etcdlock.Relogin()}}
//
// A server forgets the token of a login when it restarts, and when nobody has used
// the token for five minutes. Servers before 3.5 then refuse the next login too,
// because clientv3 sends the forgotten token with it. clientv3 repeats that login
// until the context of the call ends, in each call, and every lock is lost. With
// Relogin the client drops the forgotten token and logs in without it.
//
// Newer servers never refuse a login for its token: the option does nothing there.
func Relogin() grpc.DialOption { return grpc.WithChainUnaryInterceptor(relogin) }

const loginMethod = "/etcdserverpb.Auth/Authenticate"

// relogin answers a login that was refused for its token with ErrAuthNotEnabled.
// clientv3 takes that for a server without authentication and clears its token. The
// server refuses the next request because it has no token, and clientv3 logs in again.
func relogin(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn,
	send grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	err := send(ctx, method, request, answer, conn, opts...)
	if method == loginMethod && errors.Is(rpctypes.Error(err), rpctypes.ErrInvalidAuthToken) {
		return rpctypes.ErrGRPCAuthNotEnabled
	}
	return err
}
