package sqllock

import (
	"context"
	"database/sql"
	_ "embed"
	"time"

	"github.com/fencelock/fencelock/driver"
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
		return k.info.Name
	}
	return "no dialect"
}

// dialect is everything that differs between databases: how a store is opened,
// what it promises, and the tables it needs.
type dialect struct {
	info   driver.Info
	schema string
	open   func(config) store
	// ask says how long to wait before news is asked for again where there is no notifier:
	// quiet is how long ago somebody joined a line or was granted, waiting whether
	// anybody waits (else only an Alarm is set), and dice is at random, 0.5 to 1.5, for
	// those dialects whose processes should not ask in step.
	ask     func(quiet time.Duration, waiting bool, dice float64) time.Duration
	listens bool // Options.Listen is of use
	// keep says that the notifier also runs while nobody waits but an Alarm is set.
	keep bool
}

// config is what a dialect gets to open a store. Opening asks nobody.
type config struct {
	db     *sql.DB
	names  names
	create bool   // create the tables if they are missing
	node   int64  // names this Backend in claims
	listen listen // Options.Listen, or nil
	member bool   // ballots are to be taken
}

var dialects = map[Dialect]dialect{
	SQLite:   {info: sqliteInfo, schema: sqliteSchema, open: openSQLite, ask: askFile},
	Postgres: {info: postgresInfo, schema: postgresSchema, open: openPostgres, ask: askServer, listens: true, keep: true},
	MySQL:    {info: mysqlInfo, schema: mysqlSchema, open: openMySQL, ask: askServer},
}

//go:embed schema/sqlite.sql
var sqliteSchema string

// store makes the steps of a Backend on one kind of database. Each step is
// atomic, and is repeated only when it is known not to have been applied. The
// dialect owns its statements, its clock, how a transaction begins and is tried
// again, and how other processes are woken; everything else is shared.
//
// A step that took effect returns what happened besides its answer, also when the
// answer is an error such as driver.ErrGone.
type store interface {
	// ready prepares the store at the first call. It is called again until it
	// returns nil.
	ready(ctx context.Context) error
	// ignoresContext reports that a statement may go on for long after its context ended.
	ignoresContext() bool

	enter(ctx context.Context, c *driver.Claim) (driver.Ticket, effects, error)
	renew(ctx context.Context, ts []driver.Ticket) ([]error, effects)
	leave(ctx context.Context, t *driver.Ticket, e driver.Exit) (effects, error)
	end(ctx context.Context, key string, token int64, reason string) (effects, error)
	// purge removes what has expired from a line, and grants what fits.
	purge(ctx context.Context, key string) (effects, error)

	// queue reads a line for those who wait in it.
	queue(ctx context.Context, key string) (queue, error)
	// grantOf describes the grant of a claim; ok is false if it is not granted.
	grantOf(ctx context.Context, key, id string) (g grant, ok bool, err error)
	// why says why a claim is not in line.
	why(ctx context.Context, key, id string) (driver.ErrGone, error)
	// line reads all of one line; more is false if nobody is in it.
	line(ctx context.Context, key string) (l driver.Line, more bool, err error)
	// next reads the first line with claims, dead or alive, whose key is at least
	// from and less than to; more is false if there is none.
	next(ctx context.Context, from, to []byte) (l driver.Line, more bool, err error)

	// notifier starts a notifier; nil if the database can only be polled.
	notifier() notifier
	// news returns what other processes did to claims of this node: grants, as long
	// as they were not renewed since, and claims that were broken.
	news(ctx context.Context) (effects, error)
	// notify tells other processes that they have news.
	notify()

	close() error
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

// effects is what a step did to others.
type effects struct {
	granted   []grant
	broken    []broken
	touched   []string // keys of lines that lost claims whose owners may be waiting
	strangers bool     // other processes have news
}

// grant is a waiting claim that a step granted.
type grant struct {
	key, id string
	mark    driver.Mark
	left    time.Duration
	mixed   bool
}

// broken is a claim that an operator ended.
type broken struct {
	key, id string
	gone    driver.ErrGone
}

// and adds what another step did.
func (e effects) and(f effects) effects {
	return effects{
		granted:   append(e.granted, f.granted...),
		broken:    append(e.broken, f.broken...),
		touched:   append(e.touched, f.touched...),
		strangers: e.strangers || f.strangers,
	}
}
