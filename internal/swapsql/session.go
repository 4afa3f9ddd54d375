package swapsql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"reflect"
	"strings"
	"sync"
)

// sessions knows which connections of a pool have settings under which a statement alone is a
// transaction of its own. MariaDB and MySQL let a DSN, and a program, turn that off: by autocommit=0, by a
// read-only session, by READ UNCOMMITTED, or by a transaction that was left open. A statement would be rolled
// back later then, after its claim was told that it holds the lock.
type sessions struct {
	mu    sync.Mutex
	plain map[any]bool // by driver connection: a statement alone will do
}

// mostSessions bounds how many connections are remembered.
const mostSessions = 256

// guard is true in a transaction of the statement's own. MySQL has no such variable, and reads a comment.
const guard = `@@autocommit = 1 /*M! AND @@in_transaction = 0 */`

// run runs st over conn. A statement that changes nothing, and each that reads, tells whether
// it was alone in its transaction; if it was not, what is open is committed, as BeginTx of database/sql
// would do, and st runs again.
func (s *sessions) run(ctx context.Context, conn *sql.Conn, d *Dialect, st *Statement) (int64, error) {
	if st.Creates {
		return s.create(ctx, conn, d, st)
	}
	plain, err := s.look(ctx, conn)
	if err != nil {
		return 0, err
	}
	if !plain {
		return s.wrapped(ctx, conn, d, st)
	}
	again := *st
	again.Text = strings.ReplaceAll(st.Text, "{alone}", guard)
	changed, err := again.on(ctx, conn, d)
	if err != nil || changed > 0 {
		return changed, err
	}
	var alone bool
	if err := conn.QueryRowContext(ctx, "SELECT "+guard).Scan(&alone); err != nil || alone {
		return 0, err
	}
	s.forget(conn)
	return s.wrapped(ctx, conn, d, st)
}

// create runs DDL, which no transaction holds, on a connection that is not used again.
func (s *sessions) create(ctx context.Context, conn *sql.Conn, d *Dialect, st *Statement) (int64, error) {
	defer func() { _ = conn.Raw(func(any) error { return sqldriver.ErrBadConn }) }()
	for _, text := range []string{"COMMIT", "SET SESSION TRANSACTION READ WRITE"} {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return 0, err
		}
	}
	changed, err := st.on(ctx, conn, d)
	if err == nil {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	return changed, err
}

// look reports whether a statement alone will do, and asks once for each connection.
func (s *sessions) look(ctx context.Context, conn *sql.Conn) (plain bool, err error) {
	id := identity(conn)
	s.mu.Lock()
	plain, known := s.plain[id]
	s.mu.Unlock()
	if known {
		return plain, nil
	}
	read := map[string]string{}
	rows, err := conn.QueryContext(ctx, "SHOW SESSION VARIABLES WHERE Variable_name IN ('autocommit', "+
		"'tx_read_only', 'transaction_read_only', 'tx_isolation', 'transaction_isolation')")
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

func (s *sessions) forget(conn *sql.Conn) {
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

// wrapped runs st in a transaction that is begun and ended by statements.
func (s *sessions) wrapped(ctx context.Context, conn *sql.Conn, d *Dialect, st *Statement) (changed int64, err error) {
	for _, text := range []string{"COMMIT", "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
		"START TRANSACTION READ WRITE"} {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return 0, err
		}
	}
	defer func() {
		if err != nil { // the transaction may be open
			_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
		}
	}()
	again := *st
	again.Text = strings.ReplaceAll(st.Text, "{alone}", "1 = 1")
	if changed, err = again.on(ctx, conn, d); err != nil {
		return 0, err
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	return changed, err
}
