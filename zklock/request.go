package zklock

import (
	"context"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// do runs one call of a Backend, with the current session. Its context ends with Close, too.
func do[T any](
	ctx context.Context, b *Backend, doing, key string, f func(ctx context.Context, s *session) (T, error),
) (t T, err error) {
	switch ended := driver.Ended(ctx); {
	case b.ctx.Err() != nil:
		return t, driver.ErrClosed
	case ended != nil:
		return t, ended
	case b.invalid != nil:
		return t, &driver.PermanentError{Err: b.invalid}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(b.ctx, func() { cancel(driver.ErrClosed) })()
	t, err = detached(ctx, func() (t T, err error) {
		s, err := b.session(ctx)
		if err != nil {
			return t, err
		}
		return f(ctx, s)
	})
	return t, failed(ctx, doing, key, err)
}

// detached runs f on a goroutine of its own, because the methods of zk.Conn take no context:
// each waits until the server answers, the connection breaks, or the zk.Conn is closed; while
// nothing is connected, requests wait in a queue. Where ctx ends first, f goes on by itself,
// and its outcome is unknown.
func detached[T any](ctx context.Context, f func() (T, error)) (T, error) {
	var t, none T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		t, err = f()
	}()
	select {
	case <-done:
		return t, err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

func (s *session) children(path string) ([]string, *zk.Stat, error) {
	names, stat, err := s.zk.Children(path)
	return names, stat, explainRead(err, path)
}

func (s *session) get(path string) ([]byte, *zk.Stat, error) {
	data, stat, err := s.zk.Get(path)
	return data, stat, explainRead(err, path)
}

// sync has the server catch up with the leader before it answers what is asked next.
func (s *session) sync() error {
	_, err := s.zk.Sync(s.b.prefix + linesDir)
	return err
}

func (s *session) create(path string, flags int32) error {
	create := s.zk.Create
	if flags == zk.FlagContainer {
		create = s.zk.CreateContainer
	}
	_, err := create(path, formatData, flags, s.b.acl)
	return explain(err, &zk.CreateRequest{Path: path})
}

// multi does ops in one transaction.
func (s *session) multi(ops ...any) ([]zk.MultiResponse, error) {
	rs, err := s.send(ops...)
	if at := firstFailed(rs); at < len(rs) && at < len(ops) {
		err = explain(err, ops[at])
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
