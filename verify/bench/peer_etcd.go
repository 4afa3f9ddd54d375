package bench

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/fencelock/fencelock/etcdlock"
)

func dialEtcd(e Env) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{e.Store}, Logger: zap.NewNop()})
}

func openEtcdOurs(handOff int) func(Env) (Locker, error) {
	return func(e Env) (Locker, error) {
		etcd, err := dialEtcd(e)
		if err != nil {
			return nil, err
		}
		return newFenceLocks(e, etcdlock.New(etcd, nil), handOff, etcd.Close), nil
	}
}

// etcdFloor puts a key that is not there, and deletes it.
type etcdFloor struct{ etcd *clientv3.Client }

func openEtcdFloor(e Env) (Locker, error) {
	etcd, err := dialEtcd(e)
	if err != nil {
		return nil, err
	}
	return etcdFloor{etcd}, nil
}

func (l etcdFloor) Do(ctx context.Context, key string, inside func(int64)) error {
	key = "floor/" + key
	absent := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	put, err := l.etcd.Txn(ctx).If(absent).Then(clientv3.OpPut(key, rawValue)).Commit()
	if err != nil {
		return err
	}
	if !put.Succeeded {
		return errTaken
	}
	inside(0)
	_, err = l.etcd.Delete(context.Background(), key)
	return err
}

func (l etcdFloor) Hold(context.Context, string) (Held, error) { return nil, errNever }
func (l etcdFloor) Close() error                               { return l.etcd.Close() }

// etcdConcurrency is go.etcd.io/etcd/client/v3/concurrency. Its Mutex excludes sessions,
// not goroutines, so each goroutine that is inside or waits has a session of its own; it
// is kept for the next one, for to begin one costs a lease.
type etcdConcurrency struct {
	etcd     *clientv3.Client
	ttl      int
	sessions chan *concurrency.Session
}

func openEtcdConcurrency(e Env) (Locker, error) {
	etcd, err := dialEtcd(e)
	if err != nil {
		return nil, err
	}
	return &etcdConcurrency{etcd, int(e.TTL.Seconds()), make(chan *concurrency.Session, 1000)}, nil
}

func (l *etcdConcurrency) Do(ctx context.Context, key string, inside func(int64)) (err error) {
	var s *concurrency.Session
	select {
	case s = <-l.sessions:
	default:
		if s, err = concurrency.NewSession(l.etcd, concurrency.WithTTL(l.ttl)); err != nil {
			return err
		}
	}
	defer func() { l.sessions <- s }()
	m := concurrency.NewMutex(s, "locks/"+key)
	if err := m.Lock(ctx); err != nil {
		return err
	}
	inside(0)
	return m.Unlock(context.Background())
}

func (l *etcdConcurrency) Hold(context.Context, string) (Held, error) {
	return nil, errors.New("not measured")
}

func (l *etcdConcurrency) Close() error {
	err := inParallel(len(l.sessions), func(int) error { return (<-l.sessions).Close() })
	return errors.Join(err, l.etcd.Close())
}
