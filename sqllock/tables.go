package sqllock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/swapsql"
)

// ready looks whether the tables are there, and of which format they are.
func (p *pool) ready(ctx context.Context) error {
	if p.open.Load() {
		return nil
	}
	select {
	case p.first <- struct{}{}:
		defer func() { <-p.first }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.open.Load() {
		return nil
	}
	err := p.inspect(ctx)
	if p.create && p.missing(err) {
		err = p.createTables(ctx)
	}
	p.open.Store(err == nil)
	return p.fail("open the tables", "", err)
}

// missing reports whether err says that a table is not there yet. Others may be creating them.
func (p *pool) missing(err error) bool {
	return errors.Is(err, errNoFormat) || slices.Contains(p.dialect.missing, p.dialect.Code(err))
}

// createTables creates the tables, and looks whether they are there.
func (p *pool) createTables(ctx context.Context) error {
	schema := p.dialect.Schema(p.prefix)
	err := p.retry(ctx, func() error { return p.dialect.create(ctx, &p.config, schema) })
	if err != nil {
		return p.fail("create the tables", "", err)
	}
	for range 50 { // a proxy may have a replica answer that has not heard of them yet
		if err = p.inspect(ctx); !p.missing(err) {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// inspect reads which schemas have tables, and the format of these. It refuses to use one of two sets of tables.
func (p *pool) inspect(ctx context.Context) error {
	sets, err := p.sets(ctx)
	if err != nil {
		return err
	}
	if why, remedy := split(sets); why != "" {
		return permanent(fmt.Errorf("%s: %s To fix it: %s", p.name, why, remedy))
	}
	var format string
	err = p.query(ctx, p.dialect.SQL(formatSQL, p.prefix), func() { format = "" },
		func(scan func(to ...any) error) error { return scan(&format) })
	if err != nil {
		return err
	}
	return p.checkFormat(format)
}

// query runs a query that needs no tables. begin is called before the first row, also of a query that is sent again.
func (p *pool) query(ctx context.Context, text string, begin func(), row func(scan func(to ...any) error) error) error {
	st := &swapsql.Statement{Text: text, Begin: begin, Row: row}
	return p.retry(ctx, func() error {
		_, err := p.send(ctx, st)
		return err
	})
}

// tableSet is a schema of a PostgreSQL database that has tables of locks: a row of schemas.sql. Clients of two sets
// would hold one lock at the same time, so there may be one set only.
type tableSet struct {
	schema string // quoted
	here   bool   // this client uses it
	tables string
	way    string // what leads the role of this client to it
}

// sets returns those of the database, that of this client first.
func (p *pool) sets(ctx context.Context) (all []tableSet, err error) {
	if p.dialect.schemas == "" {
		return nil, nil
	}
	err = p.query(ctx, p.sql(p.dialect.schemas), func() { all = nil }, func(scan func(to ...any) error) error {
		var s tableSet
		err := scan(&s.schema, &s.here, &s.tables, &s.way)
		all = append(all, s)
		return err
	})
	return all, err
}

// split says in sentences what is wrong unless this client uses the only set, and what makes it so.
func split(sets []tableSet) (why, remedy string) {
	if len(sets) == 0 || len(sets) == 1 && sets[0].here {
		return "", ""
	}
	keep := max(0, slices.IndexFunc(sets, func(s tableSet) bool { return s.schema == "public" }))
	var all, drop []string
	for i, s := range sets {
		all = append(all, s.schema)
		if i != keep {
			drop = append(drop, "DROP TABLE "+s.tables+" CASCADE")
		}
	}
	if remedy = sets[0].way; len(sets) > 1 {
		remedy = "stop the clients of one set, then " + strings.Join(drop, "; ")
	}
	names := strings.Join(all, " and in ")
	if !sets[0].here {
		return "The tables of locks are in the schema " + names + ", which the role of this client does not find " +
			"in its search_path. With tables of its own it would hold locks that others hold.", remedy
	}
	return "There are tables of locks in the schema " + names + ". This client uses those in " + all[0] + ", and " +
		"would hold locks that clients of others hold.", remedy
}

// oneWriter asks the server once a minute: a cluster may change while it runs.
func (p *pool) oneWriter(ctx context.Context) error {
	if p.dialect != &mysql || time.Since(time.Unix(0, p.oneWriterAt.Load())) < time.Minute {
		return nil
	}
	read, err := settings(ctx, p.db, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ("+clusterVariables+")")
	if err != nil {
		return p.fail("read the settings of the cluster", "", err)
	}
	if cluster := severalWriters(read); cluster != "" {
		return permanent(fmt.Errorf("%s: this server is in a cluster with several writers (%s), and a transaction on "+
			"one of them does not exclude a transaction on another: lock with a Client, and check the token in the "+
			"transaction (package fence)", p.name, cluster))
	}
	p.oneWriterAt.Store(time.Now().UnixNano())
	return nil
}
