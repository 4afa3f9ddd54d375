package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/health"
	"github.com/fencelock/fencelock/driver/record"
	"github.com/fencelock/fencelock/internal/swapsql"
	"github.com/fencelock/fencelock/swaplock"
)

// Backend keeps lines of claims in a database. Its methods may be called from many goroutines at once.
type Backend struct {
	backend
	bad     error // why no call can succeed
	swap    *swaplock.Backend
	store   *swapsql.Store
	servers *pool // nil on SQLite
}

// backend has the methods of a Backend.
type backend interface {
	driver.Backend
	driver.Alarm
	driver.Detacher
	driver.Reserver
	record.Store
	health.Examiner
}

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
	k := dialects[d]
	n, bad := check(db, d, o)
	if bad != nil {
		bad = driver.Permanent(fmt.Errorf("%v: %w", d, bad))
	}
	c := config{name: d.String(), db: db, names: n, create: o.CreateTables, listen: o.Listen, bad: bad}
	if k.swap == nil {
		k = dialects[SQLite] // whose statements all return bad
	}
	swapping, store := newSwapping(c, k)
	b := &Backend{backend: swapping, bad: bad, swap: swapping.Backend.Backend, store: store}
	b.servers, _ = swapping.conns.(*pool)
	return b
}

// check says what is wrong with the arguments of New.
func check(db *sql.DB, d Dialect, o *Options) (names, error) {
	k, ok := dialects[d]
	if !ok {
		return names{}, errDialect(d)
	}
	n, err := newNames(o.Prefix)
	switch {
	case err != nil:
	case o.Listen != nil && !k.listen:
		err = errors.New("Options.Listen is for PostgreSQL: leave it out")
	case db == nil:
		err = errors.New("no database was given: pass the *sql.DB that sql.Open returned")
	}
	return n, err
}

// swapping is a backend whose lines are swapped: see swaplock.
type swapping struct {
	*swapsql.Backend
	config
	dialect dialect
	conns   conns
	stop    context.CancelFunc
}

func newSwapping(c config, k dialect) (*swapping, *swapsql.Store) {
	b := &swapping{dialect: k}
	c.ctx, b.stop = context.WithCancel(context.Background())
	b.config, b.conns = c, k.conns(c)
	store := swapsql.New(b.conns, k.swap, swapsql.Options{Prefix: c.names.prefix, Listen: b.conns.listener()})
	b.Backend = swapsql.Open(store)
	return b, store
}

// Await starts a goroutine that ends with Close, so one that cannot wait does not begin to.
func (b *swapping) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	if b.bad != nil {
		return driver.Ticket{}, b.bad
	}
	return b.Backend.Await(ctx, t)
}

// Open takes the backend over for one Client, and says which of the Options is bad.
func (b *swapping) Open() error { return b.Take(b.bad) }

// Leave takes the claim with t.ID out of the line, and wakes everyone that this makes granted.
func (b *swapping) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	if e.Tombstone {
		t.TTL = max(t.TTL, minTombstone)
	}
	return b.Backend.Leave(ctx, t, e)
}

// minTombstone is longer than a statement goes on after its caller, so that an Enter does not come
// after the tombstone of its claim.
const minTombstone = 2 * lateFor

// Close ends the Backend's goroutines, and makes calls that are under way return ErrClosed. It leaves the
// database open and the claims where they are.
func (b *swapping) Close() error {
	err := b.Backend.Close()
	b.stop()
	if b.bad == nil {
		b.conns.close()
	}
	return err
}
