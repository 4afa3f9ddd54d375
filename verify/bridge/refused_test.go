package bridge

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/etcdlock/etcdmutex"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/redislock/redisson"
	"github.com/fencelock/fencelock/redislock/setnx"
	"github.com/fencelock/fencelock/sqllock/foreign"
)

// A server that refuses the lock of another library has done nothing, and the error says so. A program that waits goes
// on where that may change, and is told at once where it will not.
func TestServerThatRefusesAForeignLockHasDoneNothing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cause []any
		stays bool
	}{
		"out of memory":         {[]any{"CONFIG", "SET", "maxmemory", "1"}, false},
		"too few replicas":      {[]any{"CONFIG", "SET", "min-replicas-to-write", "1"}, false},
		"the user has no right": {[]any{"ACL", "SETUSER", "default", "-set", "-hset"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redisClient(t)
			steps.Must(t, rdb.Do(t.Context(), tt.cause...).Err())
			for _, lock := range []bridge.ForeignLock{setnx.New(rdb, "mutex:"), redisson.New(rdb, "")} {
				refuses(t, name, lock, tt.stays, "")
			}
		})
	}
}

// A step that a reset connection has lost is not sent again by go-redis: the refusal of a second copy would say nothing
// of the first.
func TestStepOfAForeignLockIsSentOnce(t *testing.T) {
	t.Parallel()
	p := faultproxy.Start(t, testserver.Redis(t).Addr(), faultproxy.Redis)
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr()})
	t.Cleanup(func() { rdb.Close() })
	lock := setnx.New(rdb, "")
	tries(t, lock, "id", true) // the server knows the script now
	var sent atomic.Int32
	p.Handle(func(r *faultproxy.Request) faultproxy.Action {
		if !strings.EqualFold(r.Args()[0], "evalsha") {
			return faultproxy.Pass
		}
		sent.Add(1)
		return faultproxy.DropAnswer
	})
	if _, err := lock.Try(t.Context(), "key", "id", lease); err == nil || errors.Is(err, driver.ErrRefused) {
		t.Errorf("Try returned %v; want an error with an unknown outcome", err)
	}
	if n := sent.Load(); n != 1 {
		t.Errorf("Try was sent %d times; want once", n)
	}
}

// refuses wants a refusal of the server to say that nothing happened, whether it stays, to which lock, and what to do.
func refuses(t *testing.T, what string, lock bridge.ForeignLock, stays bool, says string) {
	t.Helper()
	_, err := client(t, bridge.New(bridge.Foreign(lock), memlock.New())).TryLock(t.Context(), "order/42")
	if !errors.Is(err, driver.ErrRefused) || errors.Is(err, driver.ErrPermanent) != stays {
		t.Errorf("%s, %s: TryLock returned %v; want a refusal, for good: %v", what, lock.Name(), err, stays)
	}
	for _, text := range []string{says, `"order/42"`} {
		if !strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("%s, %s: TryLock returned %v; want it to say %q", what, lock.Name(), err, text)
		}
	}
	if strings.Contains(fmt.Sprint(err), "wr0ng") {
		t.Errorf("%s, %s: the error tells the password: %v", what, lock.Name(), err)
	}
}

func do(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

const pgTable = `CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP NOT NULL,
	locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL)`

func TestPostgresThatRefusesAForeignLockHasDoneNothing(t *testing.T) {
	t.Parallel()
	primary := testserver.Postgres(t, testserver.Config("wal_level = replica", "max_wal_senders = 4"))
	admin := open(t, "pgx", primary.URL())
	do(t, admin, pgTable, "CREATE ROLE plain LOGIN", "CREATE ROLE crowd LOGIN CONNECTION LIMIT 0",
		"REVOKE EXECUTE ON FUNCTION pg_try_advisory_lock(bigint) FROM PUBLIC")
	standby := testserver.PostgresStandby(t, primary, primary.Addr())
	secret := testserver.Postgres(t, testserver.Password("right"))
	as := func(s *testserver.Server, user *url.Userinfo, database string) *sql.DB {
		u, err := url.Parse(s.URL())
		steps.Must(t, err)
		u.User, u.Path = user, database
		return open(t, "pgx", u.String())
	}
	closed := open(t, "pgx", primary.URL())
	closed.Close()
	for _, tt := range []struct {
		what  string
		db    *sql.DB
		table string
		stays bool
		says  string // empty if the lock of a session is not refused
		shed  string
	}{
		{"no table", admin, "jobs.locks", true, "", "the table jobs.locks is missing"},
		{"no right", as(primary, url.User("plain"), "/postgres"), "", true, "GRANT EXECUTE ON FUNCTION pg_try_advisory_lock",
			"GRANT SELECT, INSERT, UPDATE ON shedlock"},
		{"no database", as(primary, url.User("postgres"), "/none"), "", true, "no such database", "no such database"},
		{"wrong password", as(secret, url.UserPassword("postgres", "wr0ng"), "/postgres"), "", true, "does not let us in",
			"does not let us in"},
		{"too many connections", as(primary, url.User("crowd"), "/postgres"), "", false, "too many connections",
			"too many connections"},
		{"a standby", open(t, "pgx", standby.URL()), "", false, "", "connect to the primary"},
		{"a closed database", closed, "", true, "the program has closed the database", "the program has closed the database"},
	} {
		refuses(t, tt.what, foreign.ShedLock(tt.db, foreign.Postgres, &foreign.ShedLockOptions{Table: tt.table}), tt.stays, tt.shed)
		if tt.says != "" {
			refuses(t, tt.what, foreign.Advisory(tt.db, nil), tt.stays, tt.says)
		}
	}
}

func TestMariaDBThatRefusesAForeignLockHasDoneNothing(t *testing.T) {
	t.Parallel()
	server := testserver.MariaDB(t)
	admin := dbOf(t, server, "root")
	do(t, admin, strings.ReplaceAll(pgTable, "TIMESTAMP", "TIMESTAMP(3)"),
		"CREATE USER plain", "GRANT CREATE TEMPORARY TABLES ON *.* TO plain", "CREATE USER jobs IDENTIFIED BY 'open'",
		"GRANT ALL ON *.* TO jobs", "REVOKE SUPER, READ ONLY ADMIN ON *.* FROM jobs", "CREATE USER crowd",
		"GRANT ALL ON *.* TO crowd WITH MAX_USER_CONNECTIONS 1")
	shed := func(db *sql.DB, table string) bridge.ForeignLock {
		return foreign.ShedLock(db, foreign.MySQL, &foreign.ShedLockOptions{Table: table})
	}
	refuses(t, "no table", shed(admin, "none"), true, "the table none is missing")
	refuses(t, "no right", shed(dbOf(t, server, "plain"), ""), true, "GRANT SELECT, INSERT, UPDATE ON shedlock")
	for _, lock := range []bridge.ForeignLock{shed(dbOf(t, server, "jobs:wr0ng"), ""), foreign.GetLock(dbOf(t, server, "jobs:wr0ng"), "")} {
		refuses(t, "wrong password", lock, true, "refuses the user or the password")
	}
	crowd := dbOf(t, server, "crowd")
	steps.Must(t, steps.ErrOf(crowd.Conn(t.Context())))
	for _, lock := range []bridge.ForeignLock{shed(dbOf(t, server, "crowd"), ""), foreign.GetLock(dbOf(t, server, "crowd"), "")} {
		refuses(t, "too many connections", lock, false, "max_user_connections")
	}
	do(t, admin, "SET GLOBAL read_only = 1")
	refuses(t, "read-only", shed(dbOf(t, server, "jobs:open"), ""), false, "connect to the primary")
	refuses(t, "read-only", foreign.GetLock(admin, ""), false, "connect to the primary")
}

// The primary of GET_LOCK becomes a replica under its sessions. It would go on granting locks, which exclude nobody on
// the new primary.
func TestGetLockIsNotGrantedByAServerThatIsReadOnly(t *testing.T) {
	t.Parallel()
	db := mariaDB(t)
	l := foreign.GetLock(db, "")
	tries(t, l, "holder", true)
	tries(t, l, "waiter", false)
	tries(t, l, "waiter", false) // it waits in the line of the server
	do(t, db, "SET GLOBAL read_only = 1")
	steps.Is(t, "Renew", steps.ErrOf(l.Renew(t.Context(), "order/42", "holder", lease)), driver.ErrRefused)
	do(t, db, "SET GLOBAL read_only = 0")
	if has, err := l.Renew(t.Context(), "order/42", "holder", lease); !has || err != nil { // nobody else has got it
		t.Errorf("Renew: %v, %v", has, err)
	}
	do(t, db, "SET GLOBAL read_only = 1")
	releases(t, l, "holder")
	testserver.Eventually(t, time.Minute, "a claim is refused after its turn came", func() bool {
		got, err := l.Try(t.Context(), "order/42", "waiter", lease)
		if got || err != nil && !errors.Is(err, driver.ErrRefused) {
			t.Fatalf("Try of the waiter: %v, %v", got, err)
		}
		return err != nil
	})
	// The server ends the session of a claim that was refused when it sees that the connection is closed.
	testserver.Eventually(t, time.Minute, "the lock of a claim that was refused is free", func() (free bool) {
		steps.Must(t, db.QueryRowContext(t.Context(), `SELECT IS_FREE_LOCK('order/42')`).Scan(&free))
		return free
	})
}

// After a failover without a cut a connection of the pool leads to the old primary. The next try goes over another one.
func TestShedLockGivesUpAConnectionThatIsReadOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		db       *sql.DB
		d        foreign.Dialect
		readOnly string
	}{
		{postgresDB(t), foreign.Postgres, "SET default_transaction_read_only = on"},
		{mariaDB(t), foreign.MySQL, "SET SESSION TRANSACTION READ ONLY"},
	} {
		l := shedlock(t, c.db, c.d).lock
		c.db.SetMaxOpenConns(1)
		do(t, c.db, c.readOnly)
		_, err := l.Try(t.Context(), "order/42", "id", lease)
		steps.Is(t, "Try at a server that is read-only", err, driver.ErrRefused)
		tries(t, l, "id", true)
	}
}

func etcdClient(t *testing.T, c clientv3.Config) *clientv3.Client {
	t.Helper()
	c.DialTimeout, c.Logger = 10*time.Second, zap.NewNop()
	etcd, err := clientv3.New(c)
	steps.Must(t, err)
	t.Cleanup(func() { etcd.Close() })
	return etcd
}

// alarm raises the alarm of a server without space, or ends it.
func alarm(t *testing.T, etcd *clientv3.Client, what pb.AlarmRequest_AlarmAction) {
	t.Helper()
	status, err := etcd.Status(t.Context(), etcd.Endpoints()[0])
	steps.Must(t, err)
	_, err = pb.NewMaintenanceClient(etcd.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{
		Action: what, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE,
	})
	steps.Must(t, err)
}

func TestEtcdThatRefusesAForeignLockHasDoneNothing(t *testing.T) {
	t.Parallel()
	t.Run("no space", func(t *testing.T) {
		t.Parallel()
		etcd := etcdClient(t, clientv3.Config{Endpoints: []string{testserver.Etcd(t).Addr()}})
		alarm(t, etcd, pb.AlarmRequest_ACTIVATE)
		refuses(t, "no space", etcdmutex.New(etcd, "locks/"), false, "disarm the alarm")
	})
	t.Run("no leader", func(t *testing.T) {
		t.Parallel()
		members := testserver.EtcdCluster(t, 3)
		etcd := etcdClient(t, clientv3.Config{Endpoints: []string{members[0].Addr()}})
		for _, m := range members[1:] {
			steps.Must(t, m.Kill())
		}
		testserver.Eventually(t, time.Minute, "the member has no leader", func() bool {
			s, err := etcd.Status(t.Context(), members[0].Addr())
			return err == nil && s.Leader == 0
		})
		refuses(t, "no leader", etcdmutex.New(etcd, "locks/"), false, "no leader")
	})
	t.Run("no right", func(t *testing.T) {
		t.Parallel()
		at := []string{testserver.Etcd(t, testserver.Config("--bcrypt-cost=4")).Addr()}
		root := etcdClient(t, clientv3.Config{Endpoints: at})
		for _, user := range []string{"root", "plain"} {
			_, e1 := root.UserAdd(t.Context(), user, "secret")
			_, e2 := root.RoleAdd(t.Context(), user)
			_, e3 := root.UserGrantRole(t.Context(), user, user)
			if err := errors.Join(e1, e2, e3); err != nil && user != "root" { // its role is there
				t.Fatal(err)
			}
		}
		steps.Must(t, steps.ErrOf(root.AuthEnable(t.Context())))
		plain := etcdClient(t, clientv3.Config{Endpoints: at, Username: "plain", Password: "secret"})
		refuses(t, "no right", etcdmutex.New(plain, "locks/"), true, `user "plain" may not read and write`)
		refuses(t, "no user", etcdmutex.New(etcdClient(t, clientv3.Config{Endpoints: at}), "locks/"), true, "user and a password")
	})
	t.Run("a closed client", func(t *testing.T) {
		t.Parallel()
		etcd := etcdClient(t, clientv3.Config{Endpoints: []string{testserver.Etcd(t).Addr()}})
		etcd.Close()
		refuses(t, "a closed client", etcdmutex.New(etcd, "locks/"), true, "has been closed")
	})
}

// A claim that waits has a key in the line. What refuses it afterwards leaves nothing behind when it has left.
func TestRefusedClaimLeavesTheLineOfAMutex(t *testing.T) {
	t.Parallel()
	etcd := etcdClient(t, clientv3.Config{Endpoints: []string{testserver.Etcd(t).Addr()}})
	l := etcdmutex.New(etcd, "locks/")
	tries(t, l, "holder", true)
	tries(t, l, "waiter", false)
	alarm(t, etcd, pb.AlarmRequest_ACTIVATE)
	steps.Is(t, "Try without space", steps.ErrOf(l.Try(t.Context(), "order/42", "other", lease)), driver.ErrRefused)
	tries(t, l, "waiter", false) // a claim in line needs no space
	releases(t, l, "waiter")
	releases(t, l, "holder")
	alarm(t, etcd, pb.AlarmRequest_DEACTIVATE)
	if left, err := etcd.Get(context.Background(), "locks/", clientv3.WithPrefix()); err != nil || left.Count > 0 {
		t.Errorf("%d keys are left, %v", left.Count, err)
	}
	tries(t, l, "other", true)
}

// cut is the way to a server that has lost its leader, or loses answers.
type cut struct {
	clientv3.KV
	noLeader, losesAnswers bool
}

func (c *cut) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if c.noLeader {
		return nil, rpctypes.ErrNoLeader
	}
	return c.KV.Get(ctx, key, opts...)
}

func (c *cut) Txn(ctx context.Context) clientv3.Txn { return &cutTxn{c.KV.Txn(ctx), c.losesAnswers} }

type cutTxn struct {
	clientv3.Txn
	losesAnswer bool
}

func (x *cutTxn) If(c ...clientv3.Cmp) clientv3.Txn  { x.Txn = x.Txn.If(c...); return x }
func (x *cutTxn) Then(o ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Then(o...); return x }
func (x *cutTxn) Else(o ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Else(o...); return x }

func (x *cutTxn) Commit() (*clientv3.TxnResponse, error) {
	done, err := x.Txn.Commit()
	if x.losesAnswer && err == nil {
		return nil, errors.New("the connection broke")
	}
	return done, err
}

// A step of several requests of which the first has done something is not refused, and what it has put is found again.
func TestStepOfAMutexThatIsHalfDoneIsUnknown(t *testing.T) {
	t.Parallel()
	etcd := etcdClient(t, clientv3.Config{Endpoints: []string{testserver.Etcd(t).Addr()}})
	way := &cut{KV: etcd.KV, losesAnswers: true}
	etcd.KV = way
	l := etcdmutex.New(etcd, "locks/")
	unknown := func(what string, f func(context.Context, string, string, time.Duration) (bool, error), id string) {
		t.Helper()
		if got, err := f(t.Context(), "order/42", id, lease); got || err == nil || errors.Is(err, driver.ErrRefused) {
			t.Errorf("%s: %v, %v; want an unknown outcome", what, got, err)
		}
	}
	unknown("Try whose answer is lost", l.Try, "left")
	unknown("Try whose answer is lost", l.Try, "holder")
	releases(t, l, "left")
	way.losesAnswers = false
	tries(t, l, "holder", true)
	tries(t, l, "waiter", false)
	way.noLeader = true
	unknown("Renew that has started the lease again", l.Renew, "holder")
	unknown("Try that has started the lease again", l.Try, "waiter")
}
