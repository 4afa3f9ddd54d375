package bench

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The limit of each store is the cheapest pair of steps that leaves there what a grant of
// fencelock has to leave: who holds it, until when, and the last token; and that gives it
// back if it is still the holder's. It goes through the same client, in as few requests, and
// asks nothing else: nobody can wait, no claim is entered twice, nothing expires.

// storeLimits are their names, by store.
var storeLimits = map[string]string{
	onEtcd:      "compare and put on a lease, compare and delete",
	onZooKeeper: "fenced create, delete",
	onPostgres:  "one row, two statements (PostgreSQL)",
	onMariaDB:   "one row, two procedures (MariaDB)",
}

var openStoreLimit = map[string]func(Env) (Locker, error){
	onEtcd: openEtcdLimit, onZooKeeper: openZooKeeperLimit, onPostgres: openPostgresLimit, onMariaDB: openMariaDBLimit,
}

// limitOwner is as long as what a claim tells people of its owner.
const limitOwner = "bench@example.com/123456"

// etcdLimit puts a key under a lease if there is nothing below the name of the lock, and
// deletes it if nobody has touched it since. The key has the same name each time: names that
// there were cost the server time with each comparison.
type etcdLimit struct {
	etcd  *clientv3.Client
	lease clientv3.LeaseID
	name  string
}

func openEtcdLimit(e Env) (Locker, error) {
	etcd, err := dialEtcd(e)
	if err != nil {
		return nil, err
	}
	lease, err := etcd.Grant(context.Background(), 3600)
	if err != nil {
		return nil, errors.Join(err, etcd.Close())
	}
	return &etcdLimit{etcd, lease.ID, rand.Text()}, nil
}

func (l *etcdLimit) Do(ctx context.Context, key string, inside func(int64)) error {
	line := "limit/" + key + "/"
	name := line + "w" + l.name
	value := fmt.Sprintf(`{"v":1,"id":%q,"owner":%q,"capacity":1048576,"weight":1048576,"span":64,"ttl":30,"since":%d}`, rand.Text(), limitOwner, time.Now().UnixMilli())
	put, err := l.etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(line), "=", 0).WithRange(clientv3.GetPrefixRangeEnd(line))).
		Then(clientv3.OpPut(name, value, clientv3.WithLease(l.lease))).Commit()
	if err != nil {
		return err
	}
	if !put.Succeeded {
		return errTaken
	}
	inside(0)
	deleted, err := l.etcd.Txn(context.Background()).
		If(clientv3.Compare(clientv3.ModRevision(name), "=", put.Header.Revision)).
		Then(clientv3.OpDelete(name)).Commit()
	if err == nil && !deleted.Succeeded {
		err = errTaken
	}
	return err
}

func (l *etcdLimit) Hold(context.Context, string) (Held, error) { return nil, errNever }
func (l *etcdLimit) Close() error                               { return l.etcd.Close() }

// zooKeeperLimit makes an ephemeral sequential node in a folder that is there, and deletes
// it. In the same step it compares the version of a node of its session, without which a
// create whose answer was lost could not be settled, and writes to the folder, which tells
// the transaction, from which the token comes, and who else is there. It goes through the
// queue of the library, as the floor does; what fencelock asks goes past that.
type zooKeeperLimit struct{ conn *zk.Conn }

func openZooKeeperLimit(e Env) (Locker, error) {
	conn, err := dialZooKeeper(e)
	if err != nil {
		return nil, err
	}
	for _, node := range []string{"/limit", "/limit-fence"} {
		if _, err := conn.Create(node, nil, 0, everybody); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			conn.Close()
			return nil, err
		}
	}
	return zooKeeperLimit{conn}, nil
}

func (l zooKeeperLimit) Do(_ context.Context, key string, inside func(int64)) error {
	line := "/limit/" + key
	data := fmt.Appendf(nil, `{"v":1,"owner":%q,"span":64,"ttl":26666}`, limitOwner)
	ops := []any{
		&zk.CheckVersionRequest{Path: "/limit-fence", Version: 0},
		&zk.SetDataRequest{Path: line, Version: -1},
		&zk.CreateRequest{Path: line + "/c" + rand.Text() + ".1048576.1048576.", Data: data, Acl: everybody, Flags: zk.FlagEphemeralSequential},
	}
	answer, err := l.conn.Multi(ops...)
	if errors.Is(err, zk.ErrNoNode) {
		if _, err = l.conn.Create(line, nil, 0, everybody); err == nil {
			answer, err = l.conn.Multi(ops...)
		}
	}
	if err != nil {
		return err
	}
	if answer[1].Stat.NumChildren > 0 {
		return errTaken
	}
	inside(0)
	return l.conn.Delete(answer[2].String, -1)
}

func (l zooKeeperLimit) Hold(context.Context, string) (Held, error) { return nil, errNever }

func (l zooKeeperLimit) Close() error {
	l.conn.Close()
	return nil
}

// sqlLimit writes into the row of a lock its next token and who has it, and then that nobody
// has it, each in one request and one transaction. On PostgreSQL the second one does not wait
// for the disk.
type sqlLimit struct {
	db           *sql.DB
	enter, leave func(ctx context.Context, key, id string) (answered bool, err error)
}

func openPostgresLimit(e Env) (Locker, error) {
	db, err := dialSQL("pgx", e)
	if err != nil {
		return nil, err
	}
	if err := prepareSQLLimit(db, []string{
		`CREATE TABLE IF NOT EXISTS limit_line (key bytea PRIMARY KEY, last bigint NOT NULL, soonest bigint NOT NULL,
			since bigint NOT NULL DEFAULT 0, id bytea NOT NULL DEFAULT '', span bigint NOT NULL DEFAULT 0, owner bytea NOT NULL DEFAULT '') WITH (fillfactor = 50)`,
	}); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	now := "(date_part('epoch', clock_timestamp()) * 1000000)::bigint"
	enter := strings.ReplaceAll(`UPDATE limit_line SET last = greatest(last + 1, NOW) + 63, soonest = NOW + 30000000, since = NOW, id = $2, span = 64, owner = $3
		WHERE key = $1 AND soonest = 0 RETURNING last - 63`, "NOW", now)
	const leave = `UPDATE limit_line SET soonest = 0, id = '' WHERE key = $1 AND id = $2 AND set_config('synchronous_commit', 'off', true) <> '' RETURNING last`
	owner := []byte(limitOwner)
	ask := func(ctx context.Context, query string, args ...any) (bool, error) {
		var token int64
		err := db.QueryRowContext(ctx, query, args...).Scan(&token)
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	}
	return &sqlLimit{db,
		func(ctx context.Context, key, id string) (bool, error) {
			taken, err := ask(ctx, enter, []byte(key), []byte(id), owner)
			if taken || err != nil {
				return taken, err
			}
			if _, err := db.ExecContext(ctx, "INSERT INTO limit_line VALUES ($1, 0, 0) ON CONFLICT DO NOTHING", []byte(key)); err != nil {
				return false, err
			}
			return ask(ctx, enter, []byte(key), []byte(id), owner)
		},
		func(ctx context.Context, key, id string) (bool, error) {
			return ask(ctx, leave, []byte(key), []byte(id))
		},
	}, nil
}

func openMariaDBLimit(e Env) (Locker, error) {
	db, err := dialSQL("mysql", e)
	if err != nil {
		return nil, err
	}
	if err := prepareSQLLimit(db, []string{
		`CREATE TABLE IF NOT EXISTS limit_line (lock_key VARBINARY(1024) NOT NULL PRIMARY KEY, last BIGINT NOT NULL, front BIGINT NOT NULL,
			mark VARBINARY(512), mark_id VARBINARY(64), rests TINYINT NOT NULL DEFAULT 0, id VARBINARY(64),
			span BIGINT NOT NULL DEFAULT 1, capacity BIGINT NOT NULL DEFAULT 1, weight BIGINT NOT NULL DEFAULT 1, expires BIGINT NOT NULL DEFAULT 0,
			since BIGINT NOT NULL DEFAULT 0, node BIGINT NOT NULL DEFAULT 0, owner VARBINARY(256) NOT NULL DEFAULT '',
			note VARBINARY(1024) NOT NULL DEFAULT '') ENGINE = InnoDB ROW_FORMAT = DYNAMIC`,
		`CREATE PROCEDURE IF NOT EXISTS limit_enter(IN p_key VARBINARY(1024), IN p_id VARBINARY(64), IN p_owner VARBINARY(256))
		BEGIN
			UPDATE limit_line SET since = TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', SYSDATE(6)), expires = since + 30000000,
					last = LAST_INSERT_ID(GREATEST(last + 1, since)) + 63, id = p_id, span = 64, capacity = 1048576, weight = 1048576,
					node = 1, owner = p_owner, note = ''
				WHERE lock_key = p_key AND id IS NULL;
			SELECT IF(ROW_COUNT() = 1, LAST_INSERT_ID(), NULL);
		END`,
		`CREATE PROCEDURE IF NOT EXISTS limit_leave(IN p_key VARBINARY(1024), IN p_id VARBINARY(64))
		BEGIN
			UPDATE limit_line SET id = NULL WHERE lock_key = p_key AND id = p_id;
			SELECT IF(ROW_COUNT() = 1, 1, NULL);
		END`,
	}); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	ask := func(ctx context.Context, call string) (bool, error) {
		var token sql.NullInt64
		err := db.QueryRowContext(ctx, call).Scan(&token)
		return token.Valid, err
	}
	return &sqlLimit{db,
		func(ctx context.Context, key, id string) (bool, error) {
			call := fmt.Sprintf("CALL limit_enter(X'%x', X'%x', X'%x')", key, id, limitOwner)
			taken, err := ask(ctx, call)
			if taken || err != nil {
				return taken, err
			}
			if _, err := db.ExecContext(ctx, fmt.Sprintf("INSERT IGNORE INTO limit_line (lock_key, last, front) VALUES (X'%x', 0, 1)", key)); err != nil {
				return false, err
			}
			return ask(ctx, call)
		},
		func(ctx context.Context, key, id string) (bool, error) {
			return ask(ctx, fmt.Sprintf("CALL limit_leave(X'%x', X'%x')", key, id))
		},
	}, nil
}

func prepareSQLLimit(db *sql.DB, ddl []string) error {
	for _, text := range ddl {
		if _, err := db.Exec(text); err != nil {
			return err
		}
	}
	return nil
}

func (l *sqlLimit) Do(ctx context.Context, key string, inside func(int64)) error {
	id := rand.Text()
	ok, err := l.enter(ctx, key, id)
	if err != nil {
		return err
	}
	if !ok {
		return errTaken
	}
	inside(0)
	ok, err = l.leave(context.Background(), key, id)
	if err == nil && !ok {
		err = errTaken
	}
	return err
}

func (l *sqlLimit) Hold(context.Context, string) (Held, error) { return nil, errNever }
func (l *sqlLimit) Close() error                               { return l.db.Close() }
