package bench

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/fencelock/fencelock/zklock"
)

func openZooKeeperOurs(handOff int) func(Env) (Locker, error) {
	return func(e Env) (Locker, error) {
		return newFenceLocks(e, zklock.New([]string{e.Store}, nil), handOff, func() error { return nil }), nil
	}
}

func dialZooKeeper(e Env) (*zk.Conn, error) {
	conn, _, err := zk.Connect([]string{e.Store}, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	return conn, err
}

type silent struct{}

func (silent) Printf(string, ...any) {}

var everybody = zk.WorldACL(zk.PermAll)

// zooKeeperFloor makes an ephemeral sequential node and deletes it.
type zooKeeperFloor struct{ conn *zk.Conn }

func openZooKeeperFloor(e Env) (Locker, error) {
	conn, err := dialZooKeeper(e)
	if err != nil {
		return nil, err
	}
	return zooKeeperFloor{conn}, nil
}

func (l zooKeeperFloor) Do(_ context.Context, key string, inside func(int64)) error {
	path, err := l.conn.Create("/floor-"+key, nil, zk.FlagEphemeral|zk.FlagSequence, everybody)
	if err != nil {
		return err
	}
	inside(0)
	return l.conn.Delete(path, -1)
}

func (l zooKeeperFloor) Hold(context.Context, string) (Held, error) { return nil, errNever }

func (l zooKeeperFloor) Close() error {
	l.conn.Close()
	return nil
}

// zooKeeperLock is the Lock of github.com/go-zookeeper/zk. It cannot be told to give up
// waiting, and its nodes' parents stay.
type zooKeeperLock struct{ conn *zk.Conn }

func openZooKeeperLock(e Env) (Locker, error) {
	conn, err := dialZooKeeper(e)
	if err != nil {
		return nil, err
	}
	return zooKeeperLock{conn}, nil
}

func (l zooKeeperLock) Do(_ context.Context, key string, inside func(int64)) error {
	lock := zk.NewLock(l.conn, "/locks/"+key, everybody)
	if err := lock.Lock(); err != nil {
		return err
	}
	inside(0)
	return lock.Unlock()
}

func (l zooKeeperLock) Hold(context.Context, string) (Held, error) {
	return nil, errors.New("not measured")
}

func (l zooKeeperLock) Close() error {
	l.conn.Close()
	return nil
}
