package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/etcdlock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/worker"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/sqllock"
	"github.com/fencelock/fencelock/zklock"
)

// plan is what the parent and the holder that wakes up late share.
type plan struct {
	Locks string            // a SQLite file
	DSN   map[string]string // of each database
	Redis string
	HTTP  string
	Etcd  string
	ZK    string
}

// lateLease is the lease of the holder that is stopped. It must be whole until that holder has
// written to all doors once, and the test waits for its end.
const lateLease = 2 * time.Second

// door is one guarded resource. Parent and holder write to it in the same way.
type door struct {
	write func(ctx context.Context, t fence.Token, text string) error
	read  func(ctx context.Context) (string, error)
}

// holds is what a holder has: a lock in SQLite for most doors, and one in etcd and
// ZooKeeper each for those that look at the lock itself.
type holds struct {
	*fencelock.Lease
	etcd    *clientv3.Client
	inEtcd  clientv3.Cmp
	zk      *zk.Conn
	inZK    *zk.CheckVersionRequest
	closers []func()
}

func (h *holds) close() {
	for _, f := range h.closers {
		f()
	}
}

// lock takes the locks with leases of ttl. The session of ZooKeeper lasts twice as long.
func (p plan) lock(ctx context.Context, ttl time.Duration) (h holds, err error) {
	db, err := sql.Open("sqlite", p.Locks)
	if err != nil {
		return h, err
	}
	c, err := fencelock.New(sqllock.New(db, sqllock.SQLite, &sqllock.Options{CreateTables: true}), &fencelock.Options{TTL: ttl})
	if err != nil {
		return h, err
	}
	if h.Lease, err = c.Lock(ctx, "doc"); err != nil {
		return h, err
	}
	h.closers = append(h.closers, func() { c.Close(); db.Close() })
	if h.etcd, err = dialEtcd(p.Etcd); err != nil {
		return h, err
	}
	etcd := etcdlock.New(h.etcd, nil)
	c1, err := fencelock.New(etcd, &fencelock.Options{TTL: ttl})
	if err != nil {
		return h, err
	}
	l, err := c1.Lock(ctx, "doc")
	if err != nil {
		return h, err
	}
	h.closers = append(h.closers, func() { c1.Close(); h.etcd.Close() })
	if h.inEtcd, err = etcd.Holding(ctx, l.Key(), l.Token()); err != nil {
		return h, err
	}

	if h.zk, err = dialZooKeeper(p.ZK); err != nil {
		return h, err
	}
	zookeeper := zklock.New([]string{p.ZK}, &zklock.Options{SessionTimeout: 2 * ttl})
	c2, err := fencelock.New(zookeeper, &fencelock.Options{TTL: ttl})
	if err != nil {
		return h, err
	}
	if l, err = c2.Lock(ctx, "doc"); err != nil {
		return h, err
	}
	h.closers = append(h.closers, func() { c2.Close(); h.zk.Close() })
	h.inZK, err = zookeeper.Holding(ctx, l.Key(), l.Token())
	return h, err
}

// doors opens every guard there is, and one door without any.
func (p plan) doors(h holds) (map[string]door, error) {
	doors := map[string]door{}
	for _, d := range databases {
		db, err := sql.Open(d.driver, p.DSN[d.name])
		if err != nil {
			return nil, err
		}
		text := func(id int) func(context.Context) (string, error) {
			return func(ctx context.Context) (s string, err error) {
				err = db.QueryRowContext(ctx, d.sql(`SELECT body FROM doc WHERE id = ?`), id).Scan(&s)
				return s, err
			}
		}
		doors[d.name+" without a guard"] = door{func(ctx context.Context, _ fence.Token, s string) error {
			return fence.Rows(db.ExecContext(ctx, d.sql(`UPDATE doc SET body = ?, writes = writes + 1 WHERE id = 1`), s))
		}, text(1)}
		doors[d.name+" Rows"] = door{func(ctx context.Context, t fence.Token, s string) error {
			return fence.Rows(db.ExecContext(ctx, d.sql(`UPDATE doc SET body = ?, fence = ?, writes = writes + 1 WHERE id = 2 AND fence <= ?`), s, t, t))
		}, text(2)}
		table := fence.NewTable(d.dialect, "")
		doors[d.name+" Table"] = door{func(ctx context.Context, t fence.Token, s string) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := table.Advance(ctx, tx, "doc 3", t); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, d.sql(`UPDATE doc SET body = ? WHERE id = 3`), s); err != nil {
				return err
			}
			return tx.Commit()
		}, text(3)}
	}

	o, err := redis.ParseURL(p.Redis)
	if err != nil {
		return nil, err
	}
	rdb := redis.NewClient(o)
	f := redislock.NewFence(rdb, nil)
	value := func(key string) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) { return rdb.Get(ctx, key).Result() }
	}
	doors["redis without a guard"] = door{func(ctx context.Context, _ fence.Token, s string) error {
		return rdb.Set(ctx, "free", s, 0).Err()
	}, value("free")}
	doors["redis Set"] = door{func(ctx context.Context, t fence.Token, s string) error { return f.Set(ctx, "set", s, 0, t) }, value("set")}
	doors["redis Del"] = door{func(ctx context.Context, t fence.Token, s string) error {
		if err := f.Del(ctx, "del", t); err != nil {
			return err
		}
		return rdb.Set(ctx, "del", s, 0).Err() // says who deleted it
	}, value("del")}
	appends := f.Script(`return redis.call('APPEND', KEYS[1], ARGV[1])`)
	doors["redis Script"] = door{func(ctx context.Context, t fence.Token, s string) error {
		return appends.Run(ctx, t, []string{"script"}, s).Err()
	}, value("script")}

	kept := func(key string) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			r, err := h.etcd.Get(ctx, key)
			if err != nil || len(r.Kvs) == 0 {
				return "", err
			}
			return string(r.Kvs[0].Value), nil
		}
	}
	doors["etcd without a guard"] = door{func(ctx context.Context, _ fence.Token, s string) error {
		_, err := h.etcd.Put(ctx, "free", s)
		return err
	}, kept("free")}
	inEtcd := etcdlock.NewFence(h.etcd, nil)
	doors["etcd Fence"] = door{func(ctx context.Context, t fence.Token, s string) error {
		_, err := inEtcd.Do(ctx, "doc", t, clientv3.OpPut("fenced", s))
		return err
	}, kept("fenced")}
	doors["etcd Holding"] = door{func(ctx context.Context, _ fence.Token, s string) error {
		r, err := h.etcd.Txn(ctx).If(h.inEtcd).Then(clientv3.OpPut("holding", s)).Commit()
		if err == nil && !r.Succeeded {
			err = fence.ErrStale
		}
		return err
	}, kept("holding")}

	node := func(path string) func(context.Context) (string, error) {
		return func(context.Context) (string, error) {
			b, _, err := h.zk.Get(path)
			return string(b), err
		}
	}
	doors["zookeeper without a guard"] = door{func(_ context.Context, _ fence.Token, s string) error {
		_, err := h.zk.Set("/free", []byte(s), -1)
		return err
	}, node("/free")}
	inZK := zklock.NewFence(h.zk, nil)
	doors["zookeeper Fence"] = door{func(ctx context.Context, t fence.Token, s string) error {
		_, err := inZK.Do(ctx, "doc", t, setNode("/fenced", s))
		return err
	}, node("/fenced")}
	doors["zookeeper Holding"] = door{func(_ context.Context, _ fence.Token, s string) error {
		rs, err := h.zk.Multi(h.inZK, setNode("/held", s))
		if errors.Is(err, zk.ErrNoNode) && len(rs) > 0 && errors.Is(rs[0].Error, zk.ErrNoNode) {
			err = fence.ErrStale
		}
		return err
	}, node("/held")}

	client := &http.Client{Transport: &fence.Transport{}}
	for _, name := range []string{"Gates", "Table", "Gate"} {
		address := p.HTTP + "/" + name
		send := func(ctx context.Context, method, body string) (string, error) {
			r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
			if err != nil {
				return "", err
			}
			resp, err := client.Do(r)
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			if err := fence.CheckResponse(resp); err != nil {
				return "", err
			}
			if resp.StatusCode != 200 {
				return "", errors.New(resp.Status)
			}
			b, err := io.ReadAll(resp.Body)
			return string(b), err
		}
		doors["http "+name] = door{func(ctx context.Context, t fence.Token, s string) error {
			return second(send(fence.WithToken(ctx, t), "PUT", s))
		}, func(ctx context.Context) (string, error) { return send(ctx, "GET", "") }}
	}
	return doors, nil
}

// service has a document behind Handler with marks in memory, one with marks in a
// database, and one behind a Gate.
func service(db *sql.DB) http.Handler {
	mux := http.NewServeMux()
	resource := func(r *http.Request) string { return r.PathValue("doc") }

	var body string
	inMemory := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			io.WriteString(w, body)
			return
		}
		b, _ := io.ReadAll(r.Body)
		body = string(b)
	})
	mux.Handle("/Gates", fence.Handler(inMemory, &fence.Gates{}, func(*http.Request) string { return "doc" }, nil))

	inTable := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			var s string
			if err := db.QueryRow(`SELECT body FROM doc WHERE id = 4`).Scan(&s); err != nil {
				panic(err)
			}
			io.WriteString(w, s)
			return
		}
		b, _ := io.ReadAll(r.Body)
		if _, err := fence.TxFrom(r.Context()).Exec(`UPDATE doc SET body = ? WHERE id = 4`, string(b)); err != nil {
			panic(err)
		}
	})
	mux.Handle("/{doc}", fence.Handler(inTable, fence.NewTable(fence.SQLite, "").Marks(db, nil), resource, nil))

	var gate fence.Gate
	var guarded string
	mux.HandleFunc("/Gate", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			io.WriteString(w, guarded)
			return
		}
		token, err := fence.Parse(r.Header.Get(fence.Header))
		if err != nil {
			panic(err)
		}
		b, _ := io.ReadAll(r.Body)
		err = gate.Do(r.Context(), token, func() error { guarded = string(b); return nil })
		if errors.Is(err, fence.ErrStale) {
			// As Handler would answer, so that the caller knows it.
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusPreconditionFailed)
			io.WriteString(w, `{"type":"https://pkg.go.dev/github.com/fencelock/fencelock/fence#ErrStale"}`)
		} else if err != nil {
			panic(err)
		}
	})
	return mux
}

// writeLate is the holder that wakes up late.
func writeLate(p plan) error {
	ctx := context.Background()
	l, err := p.lock(ctx, lateLease)
	if err != nil {
		return err
	}
	defer l.close()
	doors, err := p.doors(l)
	if err != nil {
		return err
	}
	worker.Say("held", l.Token())
	for name, d := range doors { // which opens the connections, too
		if err := d.write(ctx, l.Token(), "first"); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	worker.Say("written")
	// Here it is stopped. It is told to go on, and does not look at its lease.
	worker.Told()
	for name, d := range doors {
		err := d.write(ctx, l.Token(), "late")
		if errors.Is(err, fence.ErrStale) {
			err = fence.ErrStale
		}
		worker.Say(name+":", err)
	}
	worker.Say("err", errors.Is(l.Err(), fencelock.ErrExpired), l.Err())
	return nil
}
