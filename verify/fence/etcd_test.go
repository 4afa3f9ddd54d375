package fence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/etcdlock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
)

func dialEtcd(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
}

func newEtcd(t testing.TB) *clientv3.Client {
	t.Helper()
	c, err := dialEtcd(sharedEtcd(t).Addr())
	steps.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
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
		staleError(t, steps.ErrOf(f.Do(t.Context(), key, old, clientv3.OpPut(key, "late"))), fence.StaleError{Resource: key, Token: old, Seen: new})
		r, err := etcd.Get(t.Context(), key)
		steps.Must(t, err)
		steps.Same(t, "refused, and yet the key became", string(r.Kvs[0].Value), new.String())
		// A stale holder must not bring back what its successor deleted.
		steps.OK(t, steps.ErrOf(f.Do(t.Context(), key, new, clientv3.OpDelete(key))))
		stale(t, "what was deleted came back", steps.ErrOf(f.Do(t.Context(), key, old, clientv3.OpPut(key, "late"))))
	}
}

func TestEtcdFenceChecksWhatItIsGiven(t *testing.T) {
	t.Parallel()
	etcd := newEtcd(t)
	f := etcdlock.NewFence(etcd, &etcdlock.FenceOptions{Prefix: "checks/"})
	for _, tok := range []fence.Token{0, -1} {
		steps.Is(t, int64(tok), steps.ErrOf(f.Do(t.Context(), "a", tok)), fence.ErrNoToken)
	}
	if _, err := f.Do(t.Context(), "", 7); err == nil {
		t.Error("a resource without a name was taken")
	}
	steps.Must(t, steps.ErrOf(f.Do(t.Context(), "a", 9))) // without operations it shows the token
	stale(t, "a late write", steps.ErrOf(f.Do(t.Context(), "a", 7, clientv3.OpPut("checked", "late"))))
	steps.Must(t, steps.ErrOf(etcd.Put(t.Context(), f.Mark("a"), "something else")))
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

// trueForTheHolderOnly wants the condition that holding returns to be true for as long as the
// claim is in the store, and never again. Both backends are on the same store.
func trueForTheHolderOnly(t *testing.T, b, other driver.Backend,
	holding func(key string, tok fence.Token) (holds func() bool, err error)) {
	t.Helper()
	client, waiter := testclient.New(t, b, nil), testclient.New(t, other, nil)
	defer client.Close()
	defer waiter.Close()
	for _, end := range []string{"released", "broken"} {
		key := "a/" + end
		first, err := client.Lock(t.Context(), key)
		steps.Must(t, err)
		holds, err := holding(key, first.Token())
		if err != nil || !holds() {
			t.Fatalf("%s: the holder does not hold: %v", key, err)
		}
		next := make(chan *fencelock.Lease, 1)
		go func() {
			l, err := waiter.Lock(context.Background(), key)
			steps.OK(t, err)
			next <- l
		}()
		testserver.Eventually(t, time.Minute, key+" has a waiter", func() bool {
			l, err := client.Line(t.Context(), key)
			steps.Must(t, err)
			return len(l.Claims) == 2
		})
		if !holds() {
			t.Errorf("%s: the holder does not hold while another waits", key)
		}
		if end == "released" {
			err = first.Release(t.Context())
		} else {
			err = client.Break(t.Context(), key, first.Token(), fencelock.Break{Reason: "it hangs"})
		}
		steps.Must(t, err)
		if holds() {
			t.Errorf("%s: it still holds", key)
		}
		steps.Is(t, key, steps.ErrOf(holding(key, first.Token())), fence.ErrStale)
		second := <-next
		if too, err := holding(key, second.Token()); err != nil || !too() || holds() {
			t.Errorf("%s: the second holder: %v", key, err)
		}
		steps.OK(t, second.Release(t.Context()))
	}
	steps.Is(t, "holding", steps.ErrOf(holding("nobody", 7)), fence.ErrStale)
	steps.Is(t, "holding", steps.ErrOf(holding("a", 0)), fence.ErrNoToken)
}
