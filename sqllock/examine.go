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
)

var _ health.Examiner = (*Backend)(nil)

// Examine reads what the settings of the database mean for locks of ttl, in up to twenty
// statements. It needs no tables. Of PostgreSQL it also tries whether notifications arrive,
// which takes three seconds if they do not.
func (b *swapping) Examine(ctx context.Context, ttl time.Duration) (health.Result, error) {
	switch {
	case b.bad != nil:
		return health.Result{}, b.bad
	case b.ctx.Err() != nil:
		return health.Result{}, driver.ErrClosed
	}
	caller := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	return b.examine(ctx, caller, &b.dialect, ttl)
}

func (c *config) examine(ctx, caller context.Context, k *dialect, ttl time.Duration) (health.Result, error) {
	e := &examination{config: *c, ttl: ttl}
	if err := k.examine(ctx, e); err != nil {
		err = fmt.Errorf("%s: reading the settings: %w", c.name, err)
		return health.Result{}, cmp.Or(driverutil.Ended(caller), err)
	}
	return e.Result, nil
}

// examination examines a database.
type examination struct {
	health.Result
	config
	ttl  time.Duration
	read map[string]string // settings by name
	role string            // of PostgreSQL's session, quoted
}

func (e *examination) add(severity health.Severity, code, setting, why, remedy string) {
	e.addValue(severity, code, setting, e.read[setting], why, remedy)
}

func (e *examination) addValue(severity health.Severity, code, setting, value, why, remedy string) {
	e.Add(health.Finding{
		Severity: severity, Code: code, Setting: setting, Value: value, Why: why, Remedy: remedy,
	})
}

func (e *examination) settings(ctx context.Context, query string) (err error) {
	e.read, err = settings(ctx, e.db, query)
	return err
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
