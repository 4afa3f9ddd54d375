package zklock

import (
	"context"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// client is what the recipe needs of a connection. A request is sent by the call; its
// answer comes to the future.
type client interface {
	AddAuth(scheme string, auth []byte) error // waits
	Children(path string) future[listing]
	Create(path string, data []byte, flags int32, acl []zk.ACL) future[string]
	CreateContainer(path string, acl []zk.ACL) future[string]
	Delete(path string, version int32) future[nothing]
	Exists(path string) future[*zk.Stat]
	Get(path string) future[node]
	Multi(ops ...any) future[[]zk.MultiResponse] // a deletion by itself is no transaction
	Set(path string, data []byte, version int32) future[*zk.Stat]
	Sync(path string) future[string]
	Watch(path string) future[*watch]
	Close()
}

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

type nothing struct{}

// future is where one answer comes.
type future[T any] chan answer[T]

type answer[T any] struct {
	t   T
	err error
}

// wait waits for an answer. It returns when ctx ends; the request goes on by itself.
func (f future[T]) wait(ctx context.Context, b *Backend) (T, error) {
	var none T
	select {
	case a := <-f:
		return a.t, a.err
	default:
	}
	select {
	case a := <-f:
		return a.t, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-b.closed:
		return none, driver.ErrClosed
	}
}

// done is an answer that is there.
func done[T any](t T, err error) future[T] {
	f := make(future[T], 1)
	f <- answer[T]{t, err}
	return f
}

// direct sends requests on the wire of a phone.
type direct struct {
	own   *zk.Conn // keeps the session
	phone *phone
}

var _ client = (*direct)(nil)

// ask sends a request on the wire there is. There is no answer if there is none.
func ask[T any](d *direct, p *packer, read func(*unpacker, *wire) (T, error), needs right) future[T] {
	d.phone.link.mu.Lock()
	w := d.phone.wire
	d.phone.link.mu.Unlock()
	var none T
	if w == nil {
		return done(none, zk.ErrConnectionClosed)
	}
	f := make(future[T], 1)
	w.send(p.b, func(body []byte, err error) {
		var t T
		if err == nil {
			u := unpacker{b: body}
			if t, err = read(&u, w); u.short {
				t, err = none, errProtocol
			}
		}
		f <- answer[T]{t, needs.explain(err)}
	})
	return f
}

func readPath(u *unpacker, _ *wire) (string, error)              { return u.string(), nil }
func readNothing(*unpacker, *wire) (nothing, error)              { return nothing{}, nil }
func readStat(u *unpacker, _ *wire) (*zk.Stat, error)            { return u.stat(), nil }
func readNode(u *unpacker, _ *wire) (node, error)                { return node{u.bytes(), u.stat()}, nil }
func readListing(u *unpacker, _ *wire) (listing, error)          { return listing{u.strings(), u.stat()}, nil }
func readMulti(u *unpacker, _ *wire) ([]zk.MultiResponse, error) { return u.multi() }

func (d *direct) AddAuth(scheme string, auth []byte) error { return d.own.AddAuth(scheme, auth) }

func (d *direct) Close() { d.own.Close() }

func (d *direct) Children(path string) future[listing] {
	p := pack(opChildren)
	p.string(path)
	p.bool(false)
	return ask(d, p, readListing, toRead(path))
}

func (d *direct) Create(path string, data []byte, flags int32, acl []zk.ACL) future[string] {
	p := pack(opCreate)
	p.create(path, data, acl, flags)
	return ask(d, p, readPath, toCreate(path))
}

func (d *direct) CreateContainer(path string, acl []zk.ACL) future[string] {
	p := pack(opCreateContainer)
	p.create(path, nil, acl, zk.FlagContainer)
	return ask(d, p, readPath, toCreate(path))
}

func (d *direct) Delete(path string, version int32) future[nothing] {
	p := pack(opDelete)
	p.at(path, version)
	return ask(d, p, readNothing, toDelete(path))
}

func (d *direct) Get(path string) future[node] {
	p := pack(opGetData)
	p.string(path)
	p.bool(false)
	return ask(d, p, readNode, toRead(path))
}

func (d *direct) Exists(path string) future[*zk.Stat] {
	p := pack(opExists)
	p.string(path)
	p.bool(false)
	return ask(d, p, readStat, toRead(path))
}

func (d *direct) Multi(ops ...any) future[[]zk.MultiResponse] {
	if len(ops) == 1 {
		if op, ok := ops[0].(*zk.DeleteRequest); ok {
			p := pack(opDelete)
			p.at(op.Path, op.Version)
			read := func(*unpacker, *wire) ([]zk.MultiResponse, error) { return []zk.MultiResponse{{}}, nil }
			return ask(d, p, read, toDelete(op.Path))
		}
	}
	p := pack(opMulti)
	p.multi(ops)
	read := func(u *unpacker, w *wire) ([]zk.MultiResponse, error) {
		rs, err := readMulti(u, w)
		for i, r := range rs {
			if r.Error != nil && i < len(ops) {
				return rs, neededBy(ops[i]).explain(err) // the first that failed
			}
		}
		return rs, err
	}
	return ask(d, p, read, right{})
}

func (d *direct) Set(path string, data []byte, version int32) future[*zk.Stat] {
	p := pack(opSetData)
	p.set(path, data, version)
	return ask(d, p, readStat, toWrite(path))
}

func (d *direct) Sync(path string) future[string] {
	p := pack(opSync)
	p.string(path)
	return ask(d, p, readPath, toRead(path))
}

// Watch reads a node and has it watched. It costs a request only if it is not watched yet.
func (d *direct) Watch(path string) future[*watch] {
	if x := d.phone.watching(path); x != nil {
		return done(x, nil)
	}
	p := pack(opGetData)
	p.string(path)
	p.bool(true)
	return ask(d, p, func(u *unpacker, w *wire) (*watch, error) {
		n, _ := readNode(u, w)
		return w.watch(path, n), nil
	}, toRead(path))
}
