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
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
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
	clients []*fencelock.Client
}

func (h *holds) close() {
	for _, c := range h.clients {
		c.Close()
	}
	h.etcd.Close()
	h.zk.Close()
}

// must ends the process if a step fails: two processes take it.
func must[T any](result T, err error) T {
	if err != nil {
		panic(err)
	}
	return result
}

// take takes the lock "doc". The claim of its holder, if it has one, is broken first.
func (h *holds) take(ctx context.Context, b driver.Backend) *fencelock.Lease {
	c := must(fencelock.New(b, &fencelock.Options{TTL: 5 * time.Minute}))
	h.clients = append(h.clients, c)
	for _, claim := range must(c.Line(ctx, "doc")).Claims {
		must(0, c.Break(ctx, "doc", claim.Token, fencelock.Break{Reason: "it hangs"}))
	}
	return must(c.Lock(ctx, "doc"))
}

// lock takes the locks.
func (p plan) lock(ctx context.Context) *holds {
	h := &holds{etcd: must(dialEtcd(p.Etcd)), zk: must(dialZooKeeper(p.ZK))}
	db := must(sql.Open("sqlite", p.Locks))
	h.Lease = h.take(ctx, sqllock.New(db, sqllock.SQLite, &sqllock.Options{CreateTables: true}))
	etcd := etcdlock.New(h.etcd, nil)
	l := h.take(ctx, etcd)
	h.inEtcd = must(etcd.Holding(ctx, l.Key(), l.Token()))
	zookeeper := zklock.New([]string{p.ZK}, &zklock.Options{SessionTimeout: 9 * time.Minute})
	l = h.take(ctx, zookeeper)
	h.inZK = must(zookeeper.Holding(ctx, l.Key(), l.Token()))
	return h
}

// doors opens every guard there is, and one door without any.
func (p plan) doors(h *holds) map[string]door {
	doors := map[string]door{}
	for _, d := range databases {
		db := must(sql.Open(d.driver, p.DSN[d.name]))
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
			return table.Marks(db, nil).Do(ctx, "doc 3", t, func(ctx context.Context) error {
				return steps.ErrOf(fence.TxFrom(ctx).ExecContext(ctx, d.sql(`UPDATE doc SET body = ? WHERE id = 3`), s))
			})
		}, text(3)}
	}

	rdb := redis.NewClient(must(redis.ParseURL(p.Redis)))
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
	send := func(ctx context.Context, method, body string) (string, error) {
		resp, err := client.Do(must(http.NewRequestWithContext(ctx, method, p.HTTP, strings.NewReader(body))))
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		if err := fence.CheckResponse(resp); err != nil {
			return "", err
		}
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	doors["http"] = door{func(ctx context.Context, t fence.Token, s string) error {
		return steps.ErrOf(send(fence.WithToken(ctx, t), "PUT", s))
	}, func(ctx context.Context) (string, error) { return send(ctx, "GET", "") }}
	return doors
}

// service has a document in a database, with its mark.
func service(db *sql.DB) http.Handler {
	document := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			var body string
			must(0, db.QueryRow(`SELECT body FROM doc WHERE id = 4`).Scan(&body))
			io.WriteString(w, body)
			return
		}
		must(fence.TxFrom(r.Context()).Exec(`UPDATE doc SET body = ? WHERE id = 4`, string(must(io.ReadAll(r.Body)))))
	})
	marks := fence.NewTable(fence.SQLite, "").Marks(db, nil)
	return fence.Handler(document, marks, func(*http.Request) string { return "doc" }, nil)
}

// writeLate is the holder that wakes up late.
func writeLate(p plan) error {
	ctx := context.Background()
	l := p.lock(ctx)
	defer l.close()
	doors := p.doors(l)
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
	err := l.Renew(ctx)
	worker.Say("err", errors.Is(err, fencelock.ErrLost), err)
	return nil
}
