package etcdlock_test

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

// sending sends a transaction.
type sending = func() (*clientv3.TxnResponse, error)

// delaying is a KV whose transactions a test holds up.
type delaying struct {
	clientv3.KV
	commit    func(sending) (*clientv3.TxnResponse, error)
	skip      int    // how many transactions pass before hold holds one up
	meanwhile func() // what happens before the transaction fails
}

func (d *delaying) Txn(ctx context.Context) clientv3.Txn {
	return &delayed{d.KV.Txn(context.WithoutCancel(ctx)), d}
}

type delayed struct {
	clientv3.Txn
	by *delaying
}

func (d *delayed) If(ifs ...clientv3.Cmp) clientv3.Txn    { d.Txn = d.Txn.If(ifs...); return d }
func (d *delayed) Then(ops ...clientv3.Op) clientv3.Txn   { d.Txn = d.Txn.Then(ops...); return d }
func (d *delayed) Else(ops ...clientv3.Op) clientv3.Txn   { d.Txn = d.Txn.Else(ops...); return d }
func (d *delayed) Commit() (*clientv3.TxnResponse, error) { return d.by.commit(d.Txn.Commit) }

// delayed returns a Backend whose transactions pass until they are held up.
func (x *scene) delayed() (driver.Backend, *delaying) {
	x.t.Helper()
	etcd := client(x.t, x.server)
	d := &delaying{KV: etcd.KV}
	d.pass()
	etcd.KV = d
	return backend(x.t, etcd, x.prefix), d
}

func (d *delaying) pass() {
	d.commit = func(send sending) (*clientv3.TxnResponse, error) { return send() }
}

// hold holds up a transaction of call, which fails then, and returns what sends it.
func (d *delaying) hold(t *testing.T, call func() error) (late sending) {
	t.Helper()
	d.commit = func(send sending) (*clientv3.TxnResponse, error) {
		if d.skip > 0 {
			d.skip--
			return send()
		}
		late = send
		d.pass()
		if d.meanwhile != nil {
			d.meanwhile()
		}
		return nil, errors.New("it is under way")
	}
	if err := call(); err == nil || late == nil {
		t.Fatalf("the call was not held up: %v", err)
	}
	return late
}
