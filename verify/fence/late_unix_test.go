//go:build unix

package fence_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/etcdlock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/sqllock"
	"github.com/fencelock/fencelock/zklock"
)

// plan is what the parent and the holder that wakes up late share. It comes to the
// latter in an environment variable.
type plan struct {
	Locks string            // a SQLite file
	DSN   map[string]string // of each database
	Redis string
	HTTP  string
	Etcd  string
	ZK    string
}

const planVariable = "FENCELOCK_TEST_PLAN"

// lease is how long a lease lasts: long enough for a busy machine to take the lock.
const lease = 600 * time.Millisecond

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

func (p plan) lock(ctx context.Context) (h holds, err error) {
	db, err := sql.Open("sqlite", p.Locks)
	if err != nil {
		return h, err
	}
	c := fencelock.New(sqllock.New(db, sqllock.SQLite, &sqllock.Options{CreateTables: true}), &fencelock.Options{TTL: lease})
	if h.Lease, err = c.Lock(ctx, "doc"); err != nil {
		return h, err
	}
	h.closers = append(h.closers, func() { c.Close(); db.Close() })
	if h.etcd, err = dialEtcd(p.Etcd); err != nil {
		return h, err
	}
	etcd := etcdlock.New(h.etcd, nil)
	c1 := fencelock.New(etcd, &fencelock.Options{TTL: lease})
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
	zookeeper := zklock.New([]string{p.ZK}, &zklock.Options{SessionTimeout: 2 * lease})
	c2 := fencelock.New(zookeeper, &fencelock.Options{TTL: lease})
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
		doors["http "+name] = door{
			func(ctx context.Context, t fence.Token, s string) error {
				r, err := http.NewRequestWithContext(fence.WithToken(ctx, t), "PUT", address, strings.NewReader(s))
				if err != nil {
					return err
				}
				resp, err := client.Do(r)
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				if err := fence.CheckResponse(resp); err != nil {
					return err
				}
				if resp.StatusCode != 200 {
					return errors.New(resp.Status)
				}
				return nil
			},
			func(ctx context.Context) (string, error) {
				r, err := http.NewRequestWithContext(ctx, "GET", address, nil)
				if err != nil {
					return "", err
				}
				resp, err := client.Do(r)
				if err != nil {
					return "", err
				}
				defer resp.Body.Close()
				b, err := io.ReadAll(resp.Body)
				return string(b), err
			},
		}
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

// A holder that is stopped past the end of its lease, and goes on as if nothing had
// happened, is refused by every guard. Where there is none, its write is the last.
func TestHolderThatWakesUpLateIsRefusedByEveryGuard(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := plan{
		Locks: sqllock.SQLiteDSN(filepath.Join(t.TempDir(), "locks.db")),
		DSN:   map[string]string{},
		Redis: testserver.Redis(t).URL(),
	}
	etcd, _ := server(t, "etcd", testserver.StartEtcd)
	p.Etcd = etcd.Addr()
	conn, addr := newZooKeeper(t)
	p.ZK = addr
	for _, path := range []string{"/free", "/fenced", "/held"} {
		createNode(t, conn, path)
	}
	for _, d := range databases {
		p.DSN[d.name] = d.dsn(t)
		db := d.openDSN(t, p.DSN[d.name])
		for _, s := range []string{
			`CREATE TABLE doc (id INT PRIMARY KEY, body VARCHAR(100) NOT NULL, fence BIGINT NOT NULL DEFAULT 0, writes BIGINT NOT NULL DEFAULT 0)`,
			`INSERT INTO doc (id, body) VALUES (1, ''), (2, ''), (3, ''), (4, '')`,
		} {
			if _, err := db.ExecContext(ctx, s); err != nil {
				t.Fatal(err)
			}
		}
		if err := fence.NewTable(d.dialect, "").Create(ctx, db); err != nil {
			t.Fatal(err)
		}
		if d.name == "sqlite" {
			s := httptest.NewServer(service(db))
			defer s.Close()
			p.HTTP = s.URL
		}
	}

	// The first holder writes, and is stopped.
	h := p.start(t)
	first := h.hears("held")
	for range h.says("written") {
	}
	if err := h.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	// The second waits until the first one's lease has ended, and writes.
	l, err := p.lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if old, err := fence.Parse(first); err != nil || l.Token() <= old {
		t.Fatalf("the second holder's token is %v, the first one's %s, %v", l.Token(), first, err)
	}
	doors, err := p.doors(l)
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range doors {
		if s, err := d.read(ctx); err != nil || s != "first" {
			t.Errorf("%s: holds %q, %v, before the second has written", name, s, err)
		}
		if err := d.write(ctx, l.Token(), "second"); err != nil {
			t.Errorf("%s: the second holder's write: %v", name, err)
		}
	}

	// The first goes on, and writes before it looks at anything.
	fmt.Fprintln(h.in)
	if err := h.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	answers := h.says("tried")
	if len(answers) != len(doors) {
		t.Fatalf("the holder tried %d doors of %d", len(answers), len(doors))
	}
	for name, d := range doors {
		want, answer := "second", "stale"
		if strings.HasSuffix(name, "without a guard") {
			want, answer = "late", "nil"
		}
		if name == "redis Script" {
			want = "firstsecond" // it appends
		}
		if answers[name] != answer {
			t.Errorf("%s: the late write was answered %q, want %q", name, answers[name], answer)
		}
		if s, err := d.read(ctx); err != nil || s != want {
			t.Errorf("%s: holds %q, %v, want %q", name, s, err, want)
		}
		// The second goes on as before.
		if err := d.write(ctx, l.Token(), "again"); err != nil {
			t.Errorf("%s: the second holder's next write: %v", name, err)
		}
	}
	if err := l.Err(); err != nil {
		t.Fatalf("the test took so long that the second holder lost the lock: %v", err)
	}
	if got := h.hears("err"); got != "expired" {
		t.Errorf("the late holder's lease says %q", got)
	}
}

// worker is the first holder, if the environment has a plan.
func worker() bool {
	text := os.Getenv(planVariable)
	if text == "" {
		return false
	}
	if err := hold(text); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	return true
}

func hold(text string) error {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	ctx := context.Background()
	l, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	doors, err := p.doors(l)
	if err != nil {
		return err
	}
	fmt.Println("held", l.Token())
	for name, d := range doors { // which opens the connections, too
		if err := d.write(ctx, l.Token(), "first"); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	fmt.Println("written")
	// Here it is stopped. Stdin tells it to go on, and it does not look at its lease.
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	for name, d := range doors {
		switch err := d.write(ctx, l.Token(), "late"); {
		case errors.Is(err, fence.ErrStale):
			fmt.Println("tried "+name+":", "stale")
		default:
			fmt.Println("tried "+name+":", strings.ReplaceAll(fmt.Sprint(err), "<nil>", "nil"))
		}
	}
	fmt.Println("tried")
	if errors.Is(l.Err(), fencelock.ErrExpired) {
		fmt.Println("err expired")
	} else {
		fmt.Println("err", l.Err())
	}
	return nil
}

// holder is the process that wakes up late.
type holder struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out chan string
}

func (p plan) start(t *testing.T) *holder {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	h := &holder{t: t, cmd: exec.Command(os.Args[0]), out: make(chan string, 1000)}
	h.cmd.Env = append(os.Environ(), planVariable+"="+string(text))
	h.cmd.Stderr = os.Stderr
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := make(chan struct{})
	go func() {
		defer close(end)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			h.out <- lines.Text()
		}
		close(h.out)
		_ = h.cmd.Wait() // what it had to say it has said
	}()
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill()
		<-end
	})
	return h
}

// hears waits for a line that begins with word, and returns the rest of it.
func (h *holder) hears(word string) string {
	h.t.Helper()
	select {
	case line, ok := <-h.out:
		rest, is := strings.CutPrefix(line, word)
		if !ok || !is {
			h.t.Fatalf("the holder said %q; want %q", line, word)
		}
		return strings.TrimSpace(rest)
	case <-time.After(30 * time.Second):
		h.t.Fatalf("the holder did not say %q within 30s", word)
	}
	return ""
}

// says hears lines "word name: answer" until one that is word alone.
func (h *holder) says(word string) map[string]string {
	h.t.Helper()
	all := map[string]string{}
	for {
		rest := h.hears(word)
		if rest == "" {
			return all
		}
		name, answer, _ := strings.Cut(rest, ": ")
		all[name] = answer
	}
}
