package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"strings"
	"testing"
)

// garbled is a database whose driver panics at each answer, as one does that reads past a packet.
type garbled struct{ sqldriver.Conn }

func (g garbled) Connect(context.Context) (sqldriver.Conn, error) { return g, nil }
func (g garbled) Driver() sqldriver.Driver                        { return nil }
func (g garbled) Close() error                                    { return nil }

func (g garbled) QueryContext(context.Context, string, []sqldriver.NamedValue) (sqldriver.Rows, error) {
	panic("index out of range [7] with length 3")
}

// TestAnswerThatTheDriverCannotReadIsAnError: package database/sql keeps a lock on the connection
// after such a panic, for which a Close would wait forever.
func TestAnswerThatTheDriverCannotReadIsAnError(t *testing.T) {
	db := sql.OpenDB(garbled{})
	db.SetMaxOpenConns(5)
	s := newServer(config{ctx: t.Context(), name: "garbled", db: db}, &mysql{}, &mysqlErrors).store.(*server)
	for range 3 {
		err := s.send(t.Context(), "enter", "k", "CALL x", nil, func(*row) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "the driver cannot read the answer") {
			t.Errorf("send returned %v", err)
		}
	}
	s.close()
}
