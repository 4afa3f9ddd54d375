package fence_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/etcdlock"
	"github.com/fencelock/fencelock/fence"
)

func dialEtcd(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

func newEtcd(t testing.TB) *clientv3.Client {
	t.Helper()
	c, err := dialEtcd(sharedEtcd(t).Addr())
	steps.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func value(t *testing.T, etcd *clientv3.Client, key string) string {
	t.Helper()
	r, err := etcd.Get(t.Context(), key)
	steps.Must(t, err)
	if len(r.Kvs) == 0 {
		return ""
	}
	return string(r.Kvs[0].Value)
}

func TestEtcdDoWithoutOperationsShowsTheToken(t *testing.T) {
	t.Parallel()
	f := etcdlock.NewFence(newEtcd(t), nil)
	steps.Must(t, second(f.Do(t.Context(), "shown", 9)))
	stale(t, "a late write", second(f.Do(t.Context(), "shown", 7, clientv3.OpPut("shown", "late"))))
}

func TestEtcdFenceRefusesSmallerTokensOnly(t *testing.T) {
	t.Parallel()
	etcd := newEtcd(t)
	f := etcdlock.NewFence(etcd, nil)
	for _, pair := range neighbours {
		old, new := pair[0], pair[1]
		key := fmt.Sprint("refuses/\x00", old)
		for _, tok := range []fence.Token{old, old, new, new} {
			r, err := f.Do(t.Context(), key, tok, clientv3.OpPut(key, tok.String()), clientv3.OpGet(key))
			if err != nil || !r.Succeeded || len(r.Responses) != 2 || string(r.Responses[1].GetResponseRange().Kvs[0].Value) != tok.String() {
				t.Errorf("%v: %v, %v", tok, r, err)
			}
		}
		staleError(t, second(f.Do(t.Context(), key, old, clientv3.OpPut(key, "late"))), fence.StaleError{Resource: key, Token: old, Seen: new})
		steps.Same(t, "refused, and yet the key became", value(t, etcd, key), new.String())
		// A stale holder must not bring back what its successor deleted.
		steps.OK(t, second(f.Do(t.Context(), key, new, clientv3.OpDelete(key))))
		if _, err := f.Do(t.Context(), key, old, clientv3.OpPut(key, "late")); !errors.Is(err, fence.ErrStale) || value(t, etcd, key) != "" {
			t.Errorf("%v; the key is %q", err, value(t, etcd, key))
		}
	}
}

func TestEtcdFenceChecksWhatItIsGiven(t *testing.T) {
	t.Parallel()
	etcd := newEtcd(t)
	f := etcdlock.NewFence(etcd, &etcdlock.FenceOptions{Prefix: "checks/"})
	for _, tok := range []fence.Token{0, -1, math.MinInt64} {
		if _, err := f.Do(t.Context(), "a", tok); !errors.Is(err, fence.ErrNoToken) || errors.Is(err, fence.ErrStale) {
			t.Errorf("%d: %v", int64(tok), err)
		}
	}
	if _, err := f.Do(t.Context(), "", 7); err == nil {
		t.Error("a resource without a name was taken")
	}
	steps.Must(t, second(etcd.Put(t.Context(), f.Mark("a"), "something else")))
	if _, err := f.Do(t.Context(), "a", 7); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("a mark that is no token: %v", err)
	}
}

func TestEtcdHoldingIsTrueForTheHolderOnly(t *testing.T) {
	t.Parallel()
	etcd := newEtcd(t)
	o := &etcdlock.Options{Prefix: "holding/"}
	b := etcdlock.New(etcd, o)
	trueForTheHolderOnly(t, b, etcdlock.New(etcd, o), func(key string, tok fence.Token) (func() bool, error) {
		c, err := b.Holding(t.Context(), key, tok)
		return func() bool {
			r, err := etcd.Txn(t.Context()).If(c).Commit()
			steps.Must(t, err)
			return r.Succeeded
		}, err
	})
}
