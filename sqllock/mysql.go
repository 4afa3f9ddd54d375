package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	_ "embed"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

//go:embed schema/mysql.sql
var mysqlSchema string

// mysqlInfo: leases below 100 ms would end on the way to a server and back.
var mysqlInfo = driver.Info{
	Name:      "mysql",
	Fair:      true,
	Fencing:   true,
	Linger:    true,
	Mark:      true,
	Semaphore: true,
	Lease:     driver.PerClaim,
	MinTTL:    100 * time.Millisecond,
	MaxTTL:    366 * 24 * time.Hour,
}

const mysqlFormat = "1"

// askServer is often while a hand-over is likely, which is soon after the last one, and
// ever less so: a wait is prolonged by an eighth of itself, or by a quarter of a second.
func askServer(quiet time.Duration, waiting bool, dice float64) time.Duration {
	if !waiting {
		return time.Duration(dice * float64(time.Second))
	}
	return time.Duration(dice * float64(min(max(quiet/8, 2*time.Millisecond), 250*time.Millisecond)))
}

// mysql is the store on MariaDB and MySQL. All of its steps are procedures of the
// schema: one round trip each, and no transaction stays open when a process stops in
// the middle. It sends text without placeholders, so that neither prepared statements
// nor more than one statement in a query are needed, whatever the DSN says.
type mysql struct {
	config
	enters atomic.Uint32 // paces the sweep
	slow   atomic.Bool   // the driver takes no question without preparing it first
}

func openMySQL(c config) store { return &mysql{config: c} }

func (s *mysql) ignoresContext() bool { return false }

func (s *mysql) close() error { return nil }

// There is no notifier: others have to ask.
func (s *mysql) notifier() notifier { return nil }
func (s *mysql) notify()            {}

// ready looks whether the procedures are there, and of which format the tables are.
func (s *mysql) ready(ctx context.Context) error {
	err := s.inspect(ctx)
	if s.create && missingInMySQL(err) {
		if err := s.createTables(ctx); err != nil {
			return s.fail("create the tables", err)
		}
		err = s.inspect(ctx)
	}
	return err
}

func (s *mysql) inspect(ctx context.Context) error {
	var format, version string
	err := s.call(ctx, "open the tables", "", func(r *cells) error {
		return r.scan(&format, &version)
	}, "format")
	switch {
	case err != nil:
		return err
	case format == "":
		return permanent(fmt.Errorf("mysql: the table %smeta does not say which format the tables have: run the DDL of this version again", s.names.prefix))
	case format != mysqlFormat:
		return permanent(fmt.Errorf("mysql: the tables %s* have format %q, and this program knows format %s: use the fencelock that made them, or another Prefix", s.names.prefix, format, mysqlFormat))
	}
	return nil
}

// createTables runs the schema, on a connection that is not used again: its SQL mode was
// changed. What others create at the same time is there, and what they lock is free soon.
func (s *mysql) createTables(ctx context.Context) error {
	return retryMySQL(ctx, func() error {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		defer discard(conn)
		for _, text := range s.names.script(mysqlSchema) {
			if _, err := conn.ExecContext(ctx, text); err != nil && !existsInMySQL(err) {
				return err
			}
		}
		return nil
	})
}

// discard keeps a connection out of the pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}

// script splits SQL that is meant for the client of the database into statements, minding
// DELIMITER.
func (n names) script(text string) (statements []string) {
	delimiter := ";"
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if d, ok := strings.CutPrefix(line, "DELIMITER "); ok {
			delimiter = d
			continue
		}
		if b.Len() == 0 && (line == "" || strings.HasPrefix(line, "--")) {
			continue
		}
		end, ok := strings.CutSuffix(line, delimiter)
		b.WriteString(end)
		b.WriteByte('\n')
		if ok {
			statements = append(statements, n.sql(b.String()))
			b.Reset()
		}
	}
	return statements
}
