package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/record"
	"github.com/fencelock/fencelock/internal/swapsql"
	"github.com/fencelock/fencelock/swaplock"
)

// Backend keeps lines of claims in a database. Its methods may be called from many goroutines at once.
type Backend struct {
	backend
	config
	conns conns
	stop  context.CancelFunc
	swap  *swaplock.Backend
	store *swapsql.Store
}

// backend has the methods of a Backend that are those of swap.
type backend interface {
	driver.Backend
	driver.Alarm
	driver.Detacher
	driver.Reserver
}

var _ record.Store = (*Backend)(nil)

// conns are the connections of a Backend.
type conns interface {
	swapsql.Conns
	// close ends the statements that are under way, and waits for them. Run returns driver.ErrClosed from then on.
	close()
	listener() listen // Options.Listen, or nil
}

// New returns a Backend that keeps locks in db. It asks nobody and cannot fail: bad
// options, missing tables, a file that cannot be written or tables of another
// format make the calls return a driver.ErrPermanent that says what to do.
//
// Values of Backend may be as many as you like; one per database and process is
// best, because its waiters wake each other without going through the database.
func New(db *sql.DB, d Dialect, o *Options) *Backend {
	if o == nil {
		o = &Options{}
	}
	b := &Backend{config: config{name: d.String(), db: db, create: o.CreateTables, listen: o.Listen}}
	b.ctx, b.stop = context.WithCancel(context.Background())
	if b.prefix, b.bad = check(db, d, o); b.bad != nil {
		b.bad = driver.Permanent(fmt.Errorf("%v: %w", d, b.bad))
	}
	b.dialect = cmp.Or(dialects[d], &onSQLite) // whose statements all return bad
	b.conns = b.dialect.conns(b.config)
	b.store = swapsql.New(b.conns, b.dialect.Dialect, swapsql.Options{Prefix: b.prefix, Listen: b.conns.listener()})
	b.swap = swaplock.New(b.store)
	b.backend = b.swap
	return b
}

// check returns the prefix of the tables, or what is wrong with the arguments of New.
func check(db *sql.DB, d Dialect, o *Options) (prefix string, err error) {
	prefix, err = tablePrefix(o.Prefix)
	switch _, ok := dialects[d]; {
	case !ok:
		err = errDialect(d)
	case err != nil:
	case o.Listen != nil && d != Postgres:
		err = errors.New("Options.Listen is for PostgreSQL: leave it out")
	case db == nil:
		err = errors.New("no database was given: pass the *sql.DB that sql.Open returned")
	}
	return prefix, err
}

// Await waits until the claim of t is granted, or for about a second.
func (b *Backend) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	if b.bad != nil { // a goroutine that ends with Close is not started
		return driver.Ticket{}, b.bad
	}
	return b.swap.Await(ctx, t)
}

// Open takes the backend over for one Client, and says which of the Options is bad.
func (b *Backend) Open() error { return b.swap.Take(b.bad) }

// Leave takes the claim with t.ID out of the line, and wakes everyone that this makes granted.
func (b *Backend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	if e.Tombstone {
		t.TTL = max(t.TTL, minTombstone)
	}
	return b.swap.Leave(ctx, t, e)
}

// minTombstone is longer than a statement goes on after its caller, so that an Enter does not come
// after the tombstone of its claim.
const minTombstone = 2 * lateFor << longestLate

// Record adds es to the histories of their keys.
func (b *Backend) Record(ctx context.Context, es []record.Entry, keep record.Bounds) error {
	return b.store.Record(ctx, es, keep)
}

// History returns what is known of the last n grants of key.
func (b *Backend) History(ctx context.Context, key string, n int) ([]record.Entry, error) {
	return b.store.History(ctx, key, n)
}

// Close ends the Backend's goroutines, and makes calls that are under way return ErrClosed. It leaves the
// database open and the claims where they are.
func (b *Backend) Close() error {
	err := b.swap.Close()
	b.stop()
	if b.bad == nil {
		b.conns.close()
	}
	return err
}

// servers are the connections to a server, or nil on SQLite.
func (b *Backend) servers() *pool {
	p, _ := b.conns.(*pool)
	return p
}
