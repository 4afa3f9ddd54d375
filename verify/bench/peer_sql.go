package bench

import (
	"context"
	"database/sql"
	"errors"
	"hash/fnv"
	"io"
	"log"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver named "pgx"

	"github.com/fencelock/fencelock/sqllock"
	"github.com/fencelock/fencelock/verify/traffic"
)

func init() {
	// What it has to say comes back as errors too.
	_ = mysql.SetLogger(log.New(io.Discard, "", 0))
}

// dialSQL returns the pool that each of these gets. Its connections stay open.
func dialSQL(driver string, e Env) (*sql.DB, error) {
	db, err := sql.Open(driver, e.Store)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(64)
	db.SetMaxIdleConns(64)
	return db, nil
}

func openPostgresOurs(handOff int) func(Env) (Locker, error) {
	return func(e Env) (Locker, error) {
		db, err := dialSQL("pgx", e)
		if err != nil {
			return nil, err
		}
		config, err := pgx.ParseConfig(e.Store)
		if err != nil {
			return nil, err
		}
		o := &sqllock.Options{CreateTables: true, Listen: traffic.Listen(config)}
		return newFenceLocks(e, sqllock.New(db, sqllock.Postgres, o), handOff, db.Close), nil
	}
}

func openMariaDBOurs(handOff int) func(Env) (Locker, error) {
	return func(e Env) (Locker, error) {
		db, err := dialSQL("mysql", e)
		if err != nil {
			return nil, err
		}
		o := &sqllock.Options{CreateTables: true}
		return newFenceLocks(e, sqllock.New(db, sqllock.MySQL, o), handOff, db.Close), nil
	}
}

// sqlFloor changes a row that nobody else changes, twice, each time in the smallest
// transaction that a SQL database has: one statement by itself. The rows are there
// before.
type sqlFloor struct {
	db     *sql.DB
	update string
}

func openSQLFloor(driver string) func(Env) (Locker, error) {
	return func(e Env) (Locker, error) {
		db, err := dialSQL(driver, e)
		if err != nil {
			return nil, err
		}
		l := &sqlFloor{db: db, update: "UPDATE floor SET v = v + 1 WHERE k = $1"}
		insert := "INSERT INTO floor VALUES ($1, 0)"
		if driver == "mysql" {
			l.update, insert = "UPDATE floor SET v = v + 1 WHERE k = ?", "INSERT INTO floor VALUES (?, 0)"
		}
		if _, err := db.Exec("CREATE TABLE IF NOT EXISTS floor (k INTEGER PRIMARY KEY, v BIGINT)"); err != nil {
			return nil, errors.Join(err, db.Close())
		}
		var rows int
		if err := db.QueryRow("SELECT COUNT(*) FROM floor").Scan(&rows); err != nil {
			return nil, errors.Join(err, db.Close())
		}
		for ; rows < floorRows; rows++ {
			if _, err := db.Exec(insert, rows); err != nil {
				return nil, errors.Join(err, db.Close())
			}
		}
		return l, nil
	}
}

// floorRows is how many keys the floor knows. Those of one turn are consecutive numbers,
// and not more than these, so that no two of them share a row.
const floorRows = 128

func (l *sqlFloor) Do(ctx context.Context, key string, inside func(int64)) error {
	row := 0
	for _, c := range key[1:] {
		row = row*10 + int(c-'0')
	}
	if _, err := l.db.ExecContext(ctx, l.update, row%floorRows); err != nil {
		return err
	}
	inside(0)
	_, err := l.db.ExecContext(context.Background(), l.update, row%floorRows)
	return err
}

func (l *sqlFloor) Hold(context.Context, string) (Held, error) { return nil, errNever }
func (l *sqlFloor) Close() error                               { return l.db.Close() }

// advisory is a lock of a database session. It needs a connection for as long as
// somebody waits for it or holds it. It writes nothing to the disk.
type advisory struct {
	db           *sql.DB
	lock, unlock string
	name         func(key string) any
}

func openPostgresAdvisory(e Env) (Locker, error) {
	db, err := dialSQL("pgx", e)
	return &advisory{db, "SELECT pg_advisory_lock($1)", "SELECT pg_advisory_unlock($1)", func(key string) any {
		h := fnv.New64a()
		_, _ = io.WriteString(h, key)
		return int64(h.Sum64())
	}}, err
}

func openMariaDBGetLock(e Env) (Locker, error) {
	db, err := dialSQL("mysql", e)
	return &advisory{db, "SELECT GET_LOCK(?, 1000)", "SELECT RELEASE_LOCK(?)", func(key string) any { return key }}, err
}

func (l *advisory) Do(_ context.Context, key string, inside func(int64)) (err error) {
	// A session whose client leaves goes on waiting, so nobody leaves.
	ctx := context.Background()
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	name := l.name(key)
	if _, err := conn.ExecContext(ctx, l.lock, name); err != nil {
		return err
	}
	inside(0)
	_, err = conn.ExecContext(ctx, l.unlock, name)
	return err
}

func (l *advisory) Hold(context.Context, string) (Held, error) {
	return nil, errors.New("not measured")
}

func (l *advisory) Close() error { return l.db.Close() }
