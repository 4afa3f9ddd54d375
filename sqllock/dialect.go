package sqllock

import (
	"context"
	"database/sql"
	_ "embed"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/swapsql"
)

// Dialect says which database a *sql.DB speaks to.
type Dialect int

// The dialects. The zero Dialect is none.
const (
	_ Dialect = iota
	// SQLite is SQLite 3.37 or later, on a file system of this host.
	SQLite
	// Postgres is PostgreSQL 12 or later; it is tested with PostgreSQL 15.
	Postgres
	// MySQL is MariaDB 10.6 or later. MySQL 8.0.29 or later should do as well, but has not
	// been tested.
	MySQL
)

// String returns the name of the dialect in lower case, as in a URL.
func (d Dialect) String() string {
	if k, ok := dialects[d]; ok {
		return k.name
	}
	return "no dialect"
}

// dialect is what differs between databases.
type dialect struct {
	name   string
	schema string
	open   func(config) *steps
	// swap and conns replace schema and open in a dialect whose lines are swapped.
	swap  *swapsql.Dialect
	conns func(config) conns
	// examine reads the settings. It works without tables.
	examine func(ctx context.Context, e *examination) error
	listen  bool // Options.Listen is of use
	// News are polled where no notifier is active: often while a hand-over is likely, which is
	// soon after the last one, and ever less so. A wait is prolonged by an eighth of itself,
	// within these bounds.
	minPoll, maxPoll time.Duration
}

// Leases below minTTL would end while their holder waits for a server on the network, for
// another process to release the write lock, or for a disk that syncs.
const minTTL, maxTTL = 100 * time.Millisecond, 366 * 24 * time.Hour

func clampTTL(d time.Duration) time.Duration { return min(max(d, minTTL), maxTTL) }

func (k *dialect) info() driver.Info {
	return driver.Info{
		Name:   k.name,
		Fair:   true,
		Linger: true,
		MinTTL: minTTL,
		MaxTTL: maxTTL,
	}
}

var dialects = map[Dialect]dialect{
	SQLite: {
		name: "sqlite", schema: sqliteSchema, open: openSQLite, examine: examineSQLite,
		minPoll: time.Millisecond, maxPoll: 10 * time.Millisecond,
	},
	Postgres: {
		name: "postgres", swap: swapsql.Postgres, conns: openPostgres, examine: examinePostgres, listen: true,
	},
	MySQL: {
		name: "mysql", swap: swapsql.MySQL, conns: openMySQL, examine: examineMySQL,
	},
}

var (
	//go:embed schema/sqlite.sql
	sqliteSchema string
)

// config is what a dialect gets to open a store. Opening asks nobody.
type config struct {
	ctx    context.Context // ends with the Backend
	name   string          // of the dialect
	db     *sql.DB
	names  names
	create bool   // create the tables if they are missing
	node   int64  // names this Backend in claims
	listen listen // Options.Listen, or nil
	bad    error  // why no call can succeed
}

// runSchema runs a schema in one transaction.
func (c *config) runSchema(ctx context.Context, schema string) (err error) {
	conn, err := c.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			closeConn(conn) // the server may take no writes
		}
		conn.Close()
	}()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, c.names.sql(schema)); err != nil {
		return err
	}
	return tx.Commit()
}

// store makes steps on one kind of database. Each step is atomic, and is repeated only when
// it is known not to have been applied.
type store interface {
	// ready prepares the store at the first call. It is called again until it
	// returns nil.
	ready(ctx context.Context) error
	// ignoresContext reports that a statement may go on for long after its context ended.
	ignoresContext() bool
	close()

	// call makes a step. It reports whether a connection broke before, which may have been
	// after the step.
	call(ctx context.Context, what, key string, into sink, step string, args ...any) (broke bool, err error)
	// leases are the arguments of a renewal, of at most renewAtOnce leases.
	leases(ts []driver.Ticket) []any
	renewAtOnce() int

	// notifier starts a notifier; nil if the database can only be polled.
	notifier() notifier
	// notify tells other processes that they have news.
	notify()
}

// freeStore has shorter ways to take a free lock and to give up one that nobody waits for.
// Where they have not done it, a step decides.
type freeStore interface {
	enterFree(ctx context.Context, c *driver.Claim) (t driver.Ticket, done bool, err error)
	leaveFree(ctx context.Context, t *driver.Ticket) (done bool, err error)
}

// pooledStore has its connections from a pool that it shares with the program.
type pooledStore interface {
	// starved is err, the end of a context, and why if the program has all connections.
	starved(err error) error
}

// effects is what a step did to others.
type effects struct {
	granted   []grant
	broken    []broken
	touched   []string // keys of lines that lost claims whose owners may be waiting
	strangers bool     // other processes have news
}

// grant is a waiting claim that a step granted.
type grant struct {
	driverutil.ClaimRef
	mark driver.Mark
	left time.Duration
}

// broken is a claim that an operator ended.
type broken struct {
	driverutil.ClaimRef
	gone driver.GoneError
}

// notifier tells this process that others have news for it. It may tell too often, and
// rarely not at all.
type notifier interface {
	notified() <-chan struct{} // closed when the notifier is broken
	// active reports whether it would tell. While it would not, the database is polled. A
	// change of active is notified, too.
	active() bool
	close()
}
