package bridge

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/etcdlock/etcdmutex"
	"github.com/fencelock/fencelock/internal/testserver"
)

func etcdClient(t *testing.T, c clientv3.Config) *clientv3.Client {
	t.Helper()
	c.DialTimeout, c.Logger = 10*time.Second, zap.NewNop()
	etcd, err := clientv3.New(c)
	steps.Must(t, err)
	t.Cleanup(func() { etcd.Close() })
	return etcd
}

// alarm raises the alarm of a server without space, or ends it.
func alarm(t *testing.T, etcd *clientv3.Client, what pb.AlarmRequest_AlarmAction) {
	t.Helper()
	status, err := etcd.Status(t.Context(), etcd.Endpoints()[0])
	steps.Must(t, err)
	_, err = pb.NewMaintenanceClient(etcd.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{
		Action: what, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE,
	})
	steps.Must(t, err)
}

func TestEtcdThatRefusesAForeignLockHasDoneNothing(t *testing.T) {
	t.Parallel()
	t.Run("no space", func(t *testing.T) {
		t.Parallel()
		etcd := etcdClient(t, clientv3.Config{Endpoints: []string{testserver.Etcd(t).Addr()}})
		alarm(t, etcd, pb.AlarmRequest_ACTIVATE)
		refuses(t, "no space", etcdmutex.New(etcd, "locks/"), false, "disarm the alarm")
	})
	t.Run("no leader", func(t *testing.T) {
		t.Parallel()
		members := testserver.EtcdCluster(t, 3)
		etcd := etcdClient(t, clientv3.Config{Endpoints: []string{members[0].Addr()}})
		for _, m := range members[1:] {
			steps.Must(t, m.Kill())
		}
		testserver.Eventually(t, time.Minute, "the member has no leader", func() bool {
			s, err := etcd.Status(t.Context(), members[0].Addr())
			return err == nil && s.Leader == 0
		})
		refuses(t, "no leader", etcdmutex.New(etcd, "locks/"), false, "no leader")
	})
	t.Run("no right", func(t *testing.T) {
		t.Parallel()
		at := []string{testserver.Etcd(t, testserver.Config("--bcrypt-cost=4")).Addr()}
		root := etcdClient(t, clientv3.Config{Endpoints: at})
		for _, user := range []string{"root", "plain"} {
			_, e1 := root.UserAdd(t.Context(), user, "secret")
			_, e2 := root.RoleAdd(t.Context(), user)
			_, e3 := root.UserGrantRole(t.Context(), user, user)
			if err := errors.Join(e1, e2, e3); err != nil && user != "root" { // its role is there
				t.Fatal(err)
			}
		}
		steps.Must(t, steps.ErrOf(root.AuthEnable(t.Context())))
		plain := etcdClient(t, clientv3.Config{Endpoints: at, Username: "plain", Password: "secret"})
		refuses(t, "no right", etcdmutex.New(plain, "locks/"), true, `user "plain" may not read and write`)
		refuses(t, "no user", etcdmutex.New(etcdClient(t, clientv3.Config{Endpoints: at}), "locks/"), true, "user and a password")
	})
	t.Run("a closed client", func(t *testing.T) {
		t.Parallel()
		etcd := etcdClient(t, clientv3.Config{Endpoints: []string{testserver.Etcd(t).Addr()}})
		etcd.Close()
		refuses(t, "a closed client", etcdmutex.New(etcd, "locks/"), true, "has been closed")
	})
}

// A claim that waits has a key in the line. What refuses it afterwards leaves nothing behind when it has left.
func TestRefusedClaimLeavesTheLineOfAMutex(t *testing.T) {
	t.Parallel()
	etcd := etcdClient(t, clientv3.Config{Endpoints: []string{testserver.Etcd(t).Addr()}})
	l := etcdmutex.New(etcd, "locks/")
	try := func(id string) (bool, error) { return l.Try(t.Context(), "order/42", id, lease) }
	if got, err := try("holder"); !got || err != nil {
		t.Fatal(got, err)
	}
	if got, err := try("waiter"); got || err != nil {
		t.Fatal(got, err)
	}
	alarm(t, etcd, pb.AlarmRequest_ACTIVATE)
	steps.Is(t, "Try without space", steps.ErrOf(try("other")), driver.ErrRefused)
	if got, err := try("waiter"); got || err != nil {
		t.Errorf("Try of a claim in line: %v, %v; it needs no space", got, err)
	}
	for _, id := range []string{"waiter", "holder"} {
		if had, err := l.Release(t.Context(), "order/42", id); !had || err != nil {
			t.Errorf("Release of the %s: %v, %v", id, had, err)
		}
	}
	alarm(t, etcd, pb.AlarmRequest_DEACTIVATE)
	if left, err := etcd.Get(context.Background(), "locks/", clientv3.WithPrefix()); err != nil || left.Count > 0 {
		t.Errorf("%d keys are left, %v", left.Count, err)
	}
	if got, err := try("other"); !got || err != nil {
		t.Errorf("Try of a free lock: %v, %v", got, err)
	}
}

// cut is the way to a server that has lost its leader, or loses answers.
type cut struct {
	clientv3.KV
	noLeader, losesAnswers bool
}

func (c *cut) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if c.noLeader {
		return nil, rpctypes.ErrNoLeader
	}
	return c.KV.Get(ctx, key, opts...)
}

func (c *cut) Txn(ctx context.Context) clientv3.Txn { return &cutTxn{c.KV.Txn(ctx), c.losesAnswers} }

type cutTxn struct {
	clientv3.Txn
	losesAnswer bool
}

func (x *cutTxn) If(c ...clientv3.Cmp) clientv3.Txn  { x.Txn = x.Txn.If(c...); return x }
func (x *cutTxn) Then(o ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Then(o...); return x }
func (x *cutTxn) Else(o ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Else(o...); return x }

func (x *cutTxn) Commit() (*clientv3.TxnResponse, error) {
	done, err := x.Txn.Commit()
	if x.losesAnswer && err == nil {
		return nil, errors.New("the connection broke")
	}
	return done, err
}

// A step of several requests of which the first has done something is not refused, and what it has put is found again.
func TestStepOfAMutexThatIsHalfDoneIsUnknown(t *testing.T) {
	t.Parallel()
	etcd := etcdClient(t, clientv3.Config{Endpoints: []string{testserver.Etcd(t).Addr()}})
	way := &cut{KV: etcd.KV, losesAnswers: true}
	etcd.KV = way
	l := etcdmutex.New(etcd, "locks/")
	unknown := func(what string, f func(context.Context, string, string, time.Duration) (bool, error), id string) {
		t.Helper()
		if got, err := f(t.Context(), "order/42", id, lease); got || err == nil || errors.Is(err, driver.ErrRefused) {
			t.Errorf("%s: %v, %v; want an unknown outcome", what, got, err)
		}
	}
	unknown("Try whose answer is lost", l.Try, "left")
	unknown("Try whose answer is lost", l.Try, "holder")
	if had, err := l.Release(t.Context(), "order/42", "left"); !had || err != nil {
		t.Errorf("Release of a claim whose answer was lost: %v, %v", had, err)
	}
	way.losesAnswers = false
	if got, err := l.Try(t.Context(), "order/42", "holder", lease); !got || err != nil {
		t.Fatalf("Try again: %v, %v; want the lock", got, err)
	}
	if got, err := l.Try(t.Context(), "order/42", "waiter", lease); got || err != nil {
		t.Fatal(got, err)
	}
	way.noLeader = true
	unknown("Renew that has started the lease again", l.Renew, "holder")
	unknown("Try that has started the lease again", l.Try, "waiter")
}
