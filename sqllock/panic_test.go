package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"strings"
	"testing"
	"time"
)

// garbled is a database whose driver panics at each answer, as one does that reads past a packet.
type garbled struct {
	sqldriver.Conn
	open *int
}

func (g garbled) Connect(context.Context) (sqldriver.Conn, error) { *g.open++; return g, nil }
func (g garbled) Driver() sqldriver.Driver                        { return nil }
func (g garbled) Close() error                                    { *g.open--; return nil }

func (g garbled) QueryContext(context.Context, string, []sqldriver.NamedValue) (sqldriver.Rows, error) {
	panic("index out of range [7] with length 3")
}

// TestAnswerThatTheDriverCannotReadIsAnError: the connection is closed, and its place in the pool is free.
func TestAnswerThatTheDriverCannotReadIsAnError(t *testing.T) {
	open := 0
	db := sql.OpenDB(garbled{open: &open})
	db.SetMaxOpenConns(1)
	s := newServer(config{ctx: t.Context(), name: "garbled", db: db}, &mysql{}, &mysqlErrors).store.(*server)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 3 {
		err := s.send(ctx, "enter", "k", "CALL x", nil, func(*row) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "the driver cannot read the answer") {
			t.Errorf("send returned %v", err)
		}
	}
	s.close()
	if n := db.Stats().OpenConnections; n != 0 || open != 0 {
		t.Errorf("%d connections are in the pool, and %d are open", n, open)
	}
}
