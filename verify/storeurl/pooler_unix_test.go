//go:build unix

package storeurl_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
)

// A program waits for locks behind PgBouncer in transaction pooling. A LISTEN would stay in a session that other
// programs use next. They had notifications that they had not asked for, PgBouncer logged each one that came between
// two of them, and PgBouncer 1.18 ended at some.
func TestNobodyListensThroughAPooler(t *testing.T) {
	server := testserver.Postgres(t)
	front := testserver.PgBouncer(t, server, testserver.Config("default_pool_size = 1"))
	for name, tt := range map[string]struct {
		url    string
		listen bool
	}{
		"behind a pooler": {front.URL() + "&default_query_exec_mode=exec", false},
		"directly":        {server.URL(), true},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := pgx.ParseConfig(tt.url)
			steps.Must(t, err)
			db, err := sql.Open("pgx", tt.url)
			steps.Must(t, err)
			defer db.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			heard := false
			err = storeurl.Listen(config, db)(ctx, "news", func() { heard = true; cancel() })
			if heard != tt.listen || err == nil {
				t.Errorf("Listen has heard: %v, and returned %v", heard, err)
			}
			var channels int
			if err := db.QueryRow("SELECT count(*) FROM pg_listening_channels()").Scan(&channels); err != nil || channels > 0 {
				t.Errorf("a session that others use listens to %d channels, %v", channels, err)
			}
		})
	}
}

// A bridge named the locks of a session of PostgreSQL through PgBouncer, or on a standby: they were granted, and
// excluded no program of the other library.
func TestLocksOfASessionWantThePrimaryItself(t *testing.T) {
	primary := testserver.Postgres(t, testserver.Config("wal_level = replica", "max_wal_senders = 4"))
	db, err := sql.Open("pgx", primary.URL())
	steps.Must(t, err)
	defer db.Close()
	table := "CREATE TABLE shedlock (name text PRIMARY KEY, lock_until timestamp, locked_at timestamp, locked_by text)"
	steps.Must(t, steps.ErrOf(db.ExecContext(t.Context(), table)))
	pooler := testserver.PgBouncer(t, primary)
	standby := testserver.PostgresStandby(t, primary, primary.Addr())
	for _, tt := range []struct {
		url, format, refusal string
	}{
		{primary.URL(), "advisory", ""},
		{pooler.URL(), "shedlock", ""}, // which is a table
		{pooler.URL(), "advisory", "is a pooler"},
		{pooler.URL(), "symfony", "is a pooler"},
		{standby.URL(), "advisory", "is a standby"},
	} {
		s, err := storeurl.Open(t.Context(), "bridge:"+tt.url+"&format="+tt.format+",memory:")
		steps.Must(t, err)
		err = s.Ping(t.Context())
		switch {
		case tt.refusal == "" && err != nil:
			t.Errorf("%s: %v", s.Backend.Info().Name, err)
		case tt.refusal != "" && (!errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), tt.refusal)):
			t.Errorf("%s: %v; want a refusal that says it %s", s.Backend.Info().Name, err, tt.refusal)
		}
		s.Close()
	}
}
