package sqllock

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// postgresInfo: leases below 100 ms would end while their holder waits for a server
// that syncs its log. Push is added where there is a Listen function.
var postgresInfo = driver.Info{
	Name:      "postgres",
	Fair:      true,
	Fencing:   true,
	Linger:    true,
	Mark:      true,
	Semaphore: true,
	Lease:     driver.PerClaim,
	MinTTL:    100 * time.Millisecond,
	MaxTTL:    366 * 24 * time.Hour,
}

const (
	postgresFormat = "1"
	postgresOldest = 120000
)

//go:embed schema/postgres.sql
var postgresSchema string

//go:embed query/postgres/*.sql
var postgresQueries embed.FS

// postgres is the store on PostgreSQL. Each step is one call of a function that the
// schema has defined: one statement, one transaction, one round trip. It holds a
// connection of the pool for no longer than that.
type postgres struct {
	config
	enters atomic.Uint32 // paces the sweep
	q      map[string]string
	slow   atomic.Bool // the driver has to be asked through database/sql

	mu         sync.Mutex
	subscriber *subscriber // runs Options.Listen; nil when nobody waits, nor has for a while
}

func openPostgres(c config) store {
	p := &postgres{config: c, q: map[string]string{}}
	files, err := postgresQueries.ReadDir("query/postgres")
	if err != nil {
		panic(err) // they are embedded
	}
	for _, f := range files {
		text, err := postgresQueries.ReadFile("query/postgres/" + f.Name())
		if err != nil {
			panic(err)
		}
		p.q[strings.TrimSuffix(f.Name(), ".sql")] = c.names.statement(string(text))
	}
	return p
}

// ignoresContext: drivers of PostgreSQL give up a statement when its context ends.
func (p *postgres) ignoresContext() bool { return false }

func (p *postgres) close() error {
	p.mu.Lock()
	e := p.subscriber
	p.subscriber = nil
	p.mu.Unlock()
	if e != nil {
		e.end()
	}
	return nil
}

// ready looks at what database this is, in one round trip.
func (p *postgres) ready(ctx context.Context) error {
	err := p.inspect(ctx)
	if p.create && (state(err) == undefinedTable || state(err) == undefinedFunction) {
		if err := p.createTables(ctx); err != nil {
			return p.fail("create the tables", err)
		}
		err = p.inspect(ctx)
	}
	return p.fail("open the tables", err)
}

// errNoFunctions stands for what PostgreSQL says when a function is called that is
// not there. It is the text of the error.
type errNoFunctions string

func (e errNoFunctions) Error() string  { return string(e) }
func (errNoFunctions) SQLState() string { return undefinedFunction }

func (p *postgres) inspect(ctx context.Context) error {
	var version int64
	var format sql.NullString
	var functions bool
	err := p.retry(ctx, func() error {
		return p.db.QueryRowContext(ctx, p.q["ready"]).Scan(&version, &format, &functions)
	})
	switch {
	case err != nil:
		return err
	case version < postgresOldest:
		return permanent(fmt.Errorf("postgres: this is PostgreSQL %d.%d: %d or later is needed", version/10000, version%10000, postgresOldest/10000))
	case !format.Valid:
		return permanent(fmt.Errorf("postgres: the table %smeta does not say which format the tables have: run the DDL of this version again", p.names.prefix))
	case format.String != postgresFormat:
		return permanent(fmt.Errorf("postgres: the tables %s* have format %s, and this program knows format %s: use the fencelock that made them, or another Prefix", p.names.prefix, format.String, postgresFormat))
	case !functions:
		return errNoFunctions("the functions of fencelock are not there")
	}
	return nil
}

// createTables runs the schema in one transaction. As a text without arguments it goes
// out in one piece, which no pooler takes apart.
func (p *postgres) createTables(ctx context.Context) error {
	ddl := p.names.sql(postgresSchema)
	ddl = strings.Replace(ddl, "\nBEGIN;\n", "\n", 1)
	ddl = strings.Replace(ddl, "\nCOMMIT;\n", "\n", 1)
	return p.retry(ctx, func() error {
		tx, err := p.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, ddl); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// news reads what other processes have done to claims of this node.
func (p *postgres) news(ctx context.Context) (effects, error) {
	return p.tidings(ctx, "news", p.node)
}

// ring does nothing: a step that has news for others notifies them when it commits.
func (p *postgres) notify() {}

var _ store = (*postgres)(nil)
