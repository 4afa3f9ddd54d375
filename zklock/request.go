package zklock

import (
	"context"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// zkConn is what this package needs of a *zk.Conn. Its methods take no context: each
// waits until the server answers, the connection breaks, or the zk.Conn is closed. While
// nothing is connected they wait in a queue, and may be sent in a later session.
type zkConn interface {
	AddAuth(scheme string, auth []byte) error
	Children(path string) ([]string, *zk.Stat, error)
	Close()
	Create(path string, data []byte, flags int32, acl []zk.ACL) (string, error)
	CreateContainer(path string, data []byte, flags int32, acl []zk.ACL) (string, error)
	Delete(path string, version int32) error
	Exists(path string) (bool, *zk.Stat, error)
	Get(path string) ([]byte, *zk.Stat, error)
	GetW(path string) ([]byte, *zk.Stat, <-chan zk.Event, error)
	Multi(ops ...any) ([]zk.MultiResponse, error)
	Set(path string, data []byte, version int32) (*zk.Stat, error)
	Sync(path string) (string, error)
}

var _ zkConn = (*zk.Conn)(nil)

// listing is what Children answers.
type listing struct {
	names []string
	stat  *zk.Stat
}

// node is what Get answers.
type node struct {
	data []byte
	stat *zk.Stat
}

// ask sends a request and returns its answer, or the error of ctx when that ends
// first: then the request goes on by itself, and its outcome is unknown.
func ask[T any](ctx context.Context, cl *client, needs right, request func() (T, error)) (T, error) {
	type answer struct {
		t   T
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		t, err := request()
		answers <- answer{t, needs.explain(err)}
	}()
	var none T
	select {
	case a := <-answers:
		return a.t, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-cl.of.closed:
		return none, driver.ErrClosed
	}
}

func (cl *client) addAuth(ctx context.Context, scheme, auth string) error {
	_, err := ask(ctx, cl, right{}, func() (any, error) { return nil, cl.zk.AddAuth(scheme, []byte(auth)) })
	return err
}

func (cl *client) children(ctx context.Context, path string) (listing, error) {
	return ask(ctx, cl, toRead(path), func() (listing, error) {
		names, stat, err := cl.zk.Children(path)
		return listing{names, stat}, err
	})
}

func (cl *client) create(ctx context.Context, path string, data []byte, acl []zk.ACL) error {
	_, err := ask(ctx, cl, toCreate(path), func() (string, error) {
		return cl.zk.Create(path, data, zk.FlagPersistent, acl)
	})
	return err
}

func (cl *client) createContainer(ctx context.Context, path string, acl []zk.ACL) error {
	_, err := ask(ctx, cl, toCreate(path), func() (string, error) {
		return cl.zk.CreateContainer(path, nil, zk.FlagContainer, acl)
	})
	return err
}

// delete deletes a node of any version.
func (cl *client) delete(ctx context.Context, path string) error {
	_, err := ask(ctx, cl, toDelete(path), func() (any, error) { return nil, cl.zk.Delete(path, -1) })
	return err
}

// exists returns zk.ErrNoNode if there is no such node.
func (cl *client) exists(ctx context.Context, path string) (*zk.Stat, error) {
	return ask(ctx, cl, right{}, func() (*zk.Stat, error) {
		there, stat, err := cl.zk.Exists(path)
		if err == nil && !there {
			return nil, zk.ErrNoNode
		}
		return stat, err
	})
}

func (cl *client) get(ctx context.Context, path string) (node, error) {
	return ask(ctx, cl, toRead(path), func() (node, error) {
		data, stat, err := cl.zk.Get(path)
		return node{data, stat}, err
	})
}

// set writes to a node of any version.
func (cl *client) set(ctx context.Context, path string, data []byte) (*zk.Stat, error) {
	return ask(ctx, cl, toWrite(path), func() (*zk.Stat, error) { return cl.zk.Set(path, data, -1) })
}

// sync has the server catch up with the leader before it answers what is asked next.
func (cl *client) sync(ctx context.Context, path string) error {
	_, err := ask(ctx, cl, right{}, func() (string, error) { return cl.zk.Sync(path) })
	return err
}

// multi does ops in one transaction.
func (cl *client) multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return ask(ctx, cl, right{}, func() ([]zk.MultiResponse, error) { return cl.multiNow(ops) })
}

// multiNow is multi without a context.
func (cl *client) multiNow(ops []any) ([]zk.MultiResponse, error) {
	rs, err := cl.zk.Multi(ops...)
	if at := firstFailed(rs); at < len(rs) && at < len(ops) {
		err = neededBy(ops[at]).explain(err)
	}
	return rs, err
}

// firstFailed returns which operation made a transaction fail; len(rs) if none is named.
func firstFailed(rs []zk.MultiResponse) int {
	for i := range rs {
		if rs[i].Error != nil {
			return i
		}
	}
	return len(rs)
}
