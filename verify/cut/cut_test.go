// Package cut_test cuts a client's connection at each of its requests in turn: before the
// server has all of it, or after it has answered and before the client has heard. So a test
// sees every moment at which a connection can break.
package cut_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/sqllock"
	"github.com/fencelock/fencelock/storeurl"
)

// store is a store, and how to reach it at an address.
type store struct {
	addr   string
	framer faultproxy.Framer
	open   func(t *testing.T, addr string) driver.Backend
}

//verify:fault The network | reset in the middle; a request is applied and its answer is lost
func TestRedisCutAtEveryRequest(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	everyCut(t, store{s.Addr(), faultproxy.Redis, func(t *testing.T, addr string) driver.Backend {
		rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		t.Cleanup(func() { rdb.Close() })
		return redislock.New(rdb, nil)
	}})
}

//verify:fault The network | reset in the middle; a request is applied and its answer is lost
func TestPostgresCutAtEveryRequest(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	everyCut(t, store{s.Addr(), faultproxy.Postgres, func(t *testing.T, addr string) driver.Backend {
		u, err := url.Parse(s.URL())
		steps.Must(t, err)
		u.Host, u.RawQuery = addr, "sslmode=disable"
		config, err := pgx.ParseConfig(u.String())
		steps.Must(t, err)
		db := stdlib.OpenDB(*config)
		t.Cleanup(func() { db.Close() })
		o := &sqllock.Options{CreateTables: addr == s.Addr(), Listen: storeurl.Listen(config, nil)}
		return sqllock.New(db, sqllock.Postgres, o)
	}})
}

//verify:fault The network | reset in the middle; a request is applied and its answer is lost
func TestMariaDBCutAtEveryRequest(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t)
	open := func(t *testing.T, addr, database string) *sql.DB {
		o := mysql.NewConfig()
		o.Net, o.Addr, o.User, o.DBName, o.Logger = "tcp", addr, "root", database, quiet{}
		c, err := mysql.NewConnector(o)
		steps.Must(t, err)
		db := sql.OpenDB(c)
		t.Cleanup(func() { db.Close() })
		return db
	}
	steps.Must(t, steps.ErrOf(open(t, s.Addr(), "").Exec("CREATE DATABASE cut")))
	everyCut(t, store{s.Addr(), faultproxy.Framer{}, func(t *testing.T, addr string) driver.Backend {
		return sqllock.New(open(t, addr, "cut"), sqllock.MySQL, &sqllock.Options{CreateTables: addr == s.Addr()})
	}})
}

type quiet struct{}

func (quiet) Print(...any) {}

// lasting are leases that outlast the tests: what a cut leaves behind stays, and a wait that hears of
// nothing does not end.
var lasting = &fencelock.Options{TTL: time.Hour}

// scene is one thing that is done while the connection is cut. It is prepared, the proxy
// is armed, it is done, and what it says of itself is checked by others.
type scene struct {
	name string
	// interruptible says that it is worth while to let the caller's context end at the cut: the
	// call waits for something, and does not go on behind by itself.
	interruptible bool
	// do works with cl, whose connection is cut, and other, whose is not. armed is called
	// when the counting may begin. ctx may end at the cut.
	do func(r *round)
}

// round is one run of a scene.
type round struct {
	*testing.T
	ctx        context.Context // of the call that is cut
	key        string
	cl, other  *fencelock.Client
	arm        func()
	interrupts bool // ctx ends at the cut
}

func scenes() []scene {
	return []scene{
		{"acquire", true, acquire}, {"try", false, try}, {"wait", true, wait},
		{"renew", true, renew}, {"release", false, release}, {"once", false, once}, {"break", false, breaks},
	}
}

// everyCut plays each scene with the connection cut at each request of it.
func everyCut(t *testing.T, p store) {
	other := testclient.New(t, p.open(t, p.addr), lasting)
	t.Cleanup(func() { other.Close() })
	if _, err := other.Line(t.Context(), "x"); err != nil { // makes the tables
		t.Fatal(err)
	}
	for _, s := range scenes() {
		for w, action := range map[string]faultproxy.Action{
			"before": faultproxy.DropRequest, "half": faultproxy.HalveRequest, "after": faultproxy.DropAnswer,
		} {
			// Half a request is as none to a server, but for the server's own parser.
			if action == faultproxy.HalveRequest && s.name != "acquire" && s.name != "release" {
				continue
			}
			for _, interrupts := range []bool{false, true} {
				if interrupts && !s.interruptible {
					continue
				}
				name := fmt.Sprintf("%s/%s", s.name, w)
				if interrupts {
					name += "/interrupted"
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					cuts := 0
					for n := 1; !t.Failed(); n++ {
						if n > 40 {
							t.Fatal("it takes more than 40 requests")
						}
						if !play(t, p, other, s, cut{n, w, action, interrupts}) {
							break // all of them have been cut
						}
						cuts++
					}
					if cuts == 0 && !t.Failed() {
						t.Error("nothing was cut: this tests nothing")
					}
					t.Logf("%d cuts", cuts)
				})
			}
		}
	}
}

// cut is what happens to the n-th request of a scene.
type cut struct {
	n          int
	when       string
	action     faultproxy.Action
	interrupts bool // the caller's context ends then
}

// play plays s with one request cut, and reports whether there was one.
func play(t *testing.T, p store, other *fencelock.Client, s scene, c cut) bool {
	proxy, err := faultproxy.Listen(p.addr, p.framer)
	steps.Must(t, err)
	defer proxy.Close()
	cl := testclient.New(t, p.open(t, proxy.Addr()), lasting)
	defer cl.Close()
	ctx, cancel := context.WithCancel(steps.Soon(t))
	defer cancel()
	key := fmt.Sprintf("%s-%s-%d-%v", s.name, c.when, c.n, c.interrupts)
	r := &round{T: t, ctx: ctx, key: key, cl: cl, other: other, interrupts: c.interrupts}
	var then func()
	if c.interrupts {
		then = cancel
	}
	var came func() bool
	r.arm = func() { came = proxy.CutAt(c.n, c.action, then) }
	s.do(r)
	if t.Failed() {
		t.Logf("the connection was cut %s request %d", c.when, c.n)
		return false
	}
	// Whatever was cut, nothing of it is left: neither a holder nor one who waits.
	testserver.Eventually(t, time.Minute, fmt.Sprintf("cut %s request %d: nothing is left in line", c.when, c.n), func() bool {
		line, err := other.Line(context.Background(), r.key)
		return err == nil && len(line.Claims) == 0
	})
	return came()
}

// took checks what a call that takes the key has answered, and gives back what it took.
func (r *round) took(l *fencelock.Lease, err error) {
	r.Helper()
	if err != nil {
		if !r.interrupts || !errors.Is(err, context.Canceled) {
			r.Errorf("the key is free, and it was not taken: %v", err)
		}
		return
	}
	if held := l.Err(); held != nil {
		r.Errorf("it is lost at once: %v", held)
	}
	if stolen, err := r.other.TryLock(context.Background(), r.key); err == nil {
		r.Errorf("it is held with token %v, and granted to another with %v", l.Token(), stolen.Token())
	} else if !errors.Is(err, fencelock.ErrNotAcquired) {
		r.Errorf("another is told %v", err)
	}
	r.gives(l)
}

// gives releases l, and sees another take the key.
func (r *round) gives(l *fencelock.Lease) {
	r.Helper()
	steps.Well(r, "release", l.Release(r.ctx))
	r.free(l)
}

// free sees another take what l has given back, with a larger token.
func (r *round) free(l *fencelock.Lease) {
	r.Helper()
	next, err := r.other.TryLock(context.Background(), r.key)
	if err != nil {
		r.Errorf("it was released, and another is told %v", err)
		return
	}
	if next.Token() <= l.Token() {
		r.Errorf("token %v after %v", next.Token(), l.Token())
	}
	steps.OK(r, next.Release(context.Background()))
}

func acquire(r *round) {
	r.arm()
	r.took(r.cl.Lock(r.ctx, r.key))
}

func try(r *round) {
	r.arm()
	r.took(r.cl.TryLock(r.ctx, r.key))
}

// held takes the key through cl before anything is cut.
func (r *round) held() *fencelock.Lease {
	r.Helper()
	l, err := r.cl.Lock(context.Background(), r.key)
	steps.Must(r, err)
	return l
}

// wait has cl wait in line until other gives the key back.
func wait(r *round) {
	first, err := r.other.Lock(context.Background(), r.key)
	steps.Must(r, err)
	released := make(chan bool)
	go func() {
		defer close(released)
		// Once cl stands in line, and a little later: what it does while it waits is to be
		// cut, too.
		for r.ctx.Err() == nil {
			if line, err := r.other.Line(context.Background(), r.key); err == nil && len(line.Claims) > 1 {
				break
			}
			time.Sleep(time.Millisecond) // real time: between two looks
		}
		time.Sleep(5 * time.Millisecond) // real time: what it does while it waits takes some
		steps.OK(r, first.Release(context.Background()))
	}()
	r.arm()
	l, err := r.cl.Lock(r.ctx, r.key)
	<-released
	if err == nil && l.Token() <= first.Token() {
		r.Errorf("token %v after %v", l.Token(), first.Token())
	}
	if err != nil { // another may be told that first still holds
		if !r.interrupts || !errors.Is(err, context.Canceled) {
			r.Errorf("it was not granted: %v", err)
		}
		<-first.Context().Done()
		return
	}
	r.took(l, err)
}

// renew renews by hand, which is tried once: of three, the one that is cut may say that
// nobody knows, and the lease is held all the same.
func renew(r *round) {
	l := r.held()
	r.arm()
	failed := 0
	for i := range 3 {
		ctx := context.Background()
		if i == 0 {
			ctx = r.ctx
		}
		switch err := l.Renew(ctx); {
		case err == nil:
		case errors.Is(err, fencelock.ErrUnavailable):
			failed++
		default:
			r.Errorf("renew: %v", err)
		}
		steps.Well(r, "a renewal that was cut is taken for a loss", l.Err())
	}
	if failed > 1 {
		r.Errorf("one renewal was cut, and %d failed", failed)
	}
	r.took(l, nil)
}

func release(r *round) {
	l := r.held()
	r.arm()
	r.gives(l)
}

// once leaves a mark with the release: it is there, or the call says that nobody knows.
func once(r *round) {
	ran, err := r.cl.Once(context.Background(), r.key, time.Unix(1, 0), func(context.Context, *fencelock.Lease) error {
		r.arm() // the release is cut
		return nil
	})
	if !ran || err != nil {
		r.Errorf("once: %v, %v", ran, err)
	}
	again, err := r.other.Once(context.Background(), r.key, time.Unix(1, 0), func(context.Context, *fencelock.Lease) error { return nil })
	if again || err != nil {
		r.Errorf("the slot is done, and was run again: %v, %v", again, err)
	}
}

// breaks ends a claim of other.
func breaks(r *round) {
	l, err := r.other.Lock(context.Background(), r.key)
	steps.Must(r, err)
	if _, err := r.cl.Line(context.Background(), r.key); err != nil { // it has a connection
		r.Fatal(err)
	}
	r.arm()
	switch err := r.cl.Break(r.ctx, r.key, l.Token(), fencelock.Break{Reason: "tidied"}); {
	case err == nil:
	case errors.Is(err, fencelock.ErrUnavailable):
		// Nobody knows. Whoever asks again is told one of the two.
		if err := r.cl.Break(context.Background(), r.key, l.Token(), fencelock.Break{Reason: "tidied"}); err != nil && !driver.Gone(err) {
			r.Errorf("break, again: %v", err)
		}
	default:
		r.Errorf("break: %v", err)
	}
	if err := l.Renew(context.Background()); !errors.Is(err, fencelock.ErrBroken) || !strings.Contains(err.Error(), "tidied") {
		r.Errorf("the claim was broken, and its holder is told %v", err)
	}
	r.free(l)
}
