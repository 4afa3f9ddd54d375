package swapsql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"reflect"
	"strings"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// Sessions knows which connections of a pool have settings under which a statement alone is a
// transaction of its own. MariaDB and MySQL let a DSN, and a program, turn that off: by autocommit=0, by a
// read-only session, by READ UNCOMMITTED, or by a transaction that was left open. A statement would be rolled
// back later then, after its claim was told that it holds the lock.
type Sessions struct {
	mu    sync.Mutex
	plain map[any]bool // by driver connection: a statement alone will do
}

// mostSessions bounds how many connections are remembered.
const mostSessions = 256

// guard is true in a transaction of the statement's own. MySQL has no such variable, and reads a comment.
const guard = `@@autocommit = 1 /*M! AND @@in_transaction = 0 */`

// Send runs st over conn, and calls none of the functions of st. A statement that changes nothing, and each that
// reads, tells whether it was alone in its transaction; if it was not, what is open is committed, as BeginTx of
// database/sql would do, and st runs again.
func (s *Sessions) Send(ctx context.Context, conn *sql.Conn, d *Dialect, st *Statement) (*Result, error) {
	if d.kind != mysql {
		return st.send(ctx, conn, d)
	}
	plain, err := s.look(ctx, conn)
	if err != nil {
		return nil, err
	}
	if !plain {
		return s.wrapped(ctx, conn, d, st)
	}
	again := *st
	again.Text = strings.ReplaceAll(st.Text, "{alone}", guard)
	r, err := again.send(ctx, conn, d)
	if err != nil || r.Changed > 0 {
		return r, err
	}
	var alone bool
	if err := conn.QueryRowContext(ctx, "SELECT "+guard).Scan(&alone); err != nil || alone {
		return r, err
	}
	s.forget(conn)
	return s.wrapped(ctx, conn, d, st)
}

// look reports whether a statement alone will do, and asks once for each connection.
func (s *Sessions) look(ctx context.Context, conn *sql.Conn) (plain bool, err error) {
	id := identity(conn)
	s.mu.Lock()
	plain, known := s.plain[id]
	s.mu.Unlock()
	if known {
		return plain, nil
	}
	read := map[string]string{}
	rows, err := conn.QueryContext(ctx, "SHOW SESSION VARIABLES WHERE Variable_name IN ('autocommit', "+
		"'log_bin', 'binlog_format', 'tx_read_only', 'transaction_read_only', 'tx_isolation', 'transaction_isolation')")
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return false, err
		}
		read[name] = value
	}
	if read["log_bin"] == "ON" && read["binlog_format"] == "STATEMENT" {
		return false, driver.Permanent(errors.New("mysql: the server's binary log would have replicas read their own " +
			"clocks: set binlog_format to MIXED or ROW"))
	}
	plain = read["autocommit"] == "ON" && read["tx_read_only"] != "ON" && read["transaction_read_only"] != "ON" &&
		read["tx_isolation"] != "READ-UNCOMMITTED" && read["transaction_isolation"] != "READ-UNCOMMITTED"
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plain == nil || len(s.plain) >= mostSessions {
		s.plain = map[any]bool{}
	}
	if id != nil {
		s.plain[id] = plain
	}
	return plain, rows.Err()
}

func (s *Sessions) forget(conn *sql.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.plain, identity(conn))
}

// identity names the connection of the driver, or is nil.
func identity(conn *sql.Conn) (id any) {
	_ = conn.Raw(func(c any) error {
		if reflect.TypeOf(c).Kind() == reflect.Pointer {
			id = c
		}
		return nil
	})
	return id
}

// CloseConn closes the connection of conn itself, and does not give it back to the pool.
func CloseConn(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = conn.Close()
}

// wrapped runs st in a transaction that is begun and ended by statements.
func (s *Sessions) wrapped(ctx context.Context, conn *sql.Conn, d *Dialect, st *Statement) (r *Result, err error) {
	const commit = "COMMIT AND NO CHAIN NO RELEASE" // whatever completion_type is
	for _, text := range []string{commit, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
		"START TRANSACTION READ WRITE"} {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil { // the transaction may be open
			_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
		}
	}()
	again := *st
	again.Text = strings.ReplaceAll(st.Text, "{alone}", "1 = 1")
	if r, err = again.send(ctx, conn, d); err != nil {
		return nil, err
	}
	_, err = conn.ExecContext(ctx, commit)
	return r, err
}
