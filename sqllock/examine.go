package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/health"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/swapsql"
)

var _ health.Examiner = (*Backend)(nil)

// Examine reads what the settings of the database mean for locks of ttl, in up to twenty
// statements. It needs no tables. Of PostgreSQL it also tries whether notifications arrive,
// which takes three seconds if they do not.
func (b *Backend) Examine(ctx context.Context, ttl time.Duration) (health.Result, error) {
	switch {
	case b.bad != nil:
		return health.Result{}, b.bad
	case b.ctx.Err() != nil:
		return health.Result{}, driver.ErrClosed
	}
	late, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	e := &examination{Backend: b, ttl: ttl}
	if err := b.dialect.examine(late, e); err != nil {
		err = fmt.Errorf("%s: reading the settings: %w", b.name, err)
		return health.Result{}, cmp.Or(driverutil.Ended(ctx), err)
	}
	return e.Result, nil
}

// examination examines a database.
type examination struct {
	health.Result
	*Backend
	ttl  time.Duration
	read map[string]string // settings by name
	role string            // of PostgreSQL's session, quoted
}

// add adds a finding if bad. Without a value it is that of the setting.
func (e *examination) add(bad bool, severity health.Severity, code, setting, value, why, remedy string) {
	if bad {
		e.Add(health.Finding{
			Severity: severity, Code: code, Setting: setting, Value: cmp.Or(value, e.read[setting]), Why: why,
			Remedy: remedy,
		})
	}
}

// settings reads pairs of a name and a value. Names are in lower case then.
func settings(ctx context.Context, db *sql.DB, query string) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	read := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		read[strings.ToLower(name)] = value
	}
	return read, rows.Err()
}

// onNew asks over a connection that is closed afterwards, in a transaction or not.
func (e *examination) onNew(ctx context.Context, inTx bool, query string, to *string) error {
	conn, err := e.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer swapsql.CloseConn(conn)
	if !inTx {
		return conn.QueryRowContext(ctx, query).Scan(to)
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	return tx.QueryRowContext(ctx, query).Scan(to)
}

// readsElsewhere asks query over some connections until as finds that another server has answered than that of writes:
// a pooler, or a proxy, may choose a server for each connection.
func (e *examination) readsElsewhere(ctx context.Context, query string, is func(answer string) bool) (answer string,
	err error) {
	for range 8 {
		if err := e.onNew(ctx, false, query, &answer); err != nil || is(answer) {
			return answer, err
		}
	}
	return "", nil
}
