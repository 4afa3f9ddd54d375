package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/errs"
)

func TestNumbersOfMySQLErrorsAreReadFromTheirText(t *testing.T) {
	for text, want := range map[string]string{
		"Error 1213 (40001): Deadlock found when trying to get lock": "1213",
		"Error 1205: Lock wait timeout exceeded":                     "1205",
		"Error 1213":                                                 "",
		"Error : nothing":                                            "",
		"invalid connection":                                         "",
		"the Error 1213 (40001): x":                                  "",
	} {
		err := errors.New(text)
		for _, err := range []error{err, fmt.Errorf("enter: %w", err), fmt.Errorf("a: %w", fmt.Errorf("b: %w", err))} {
			if got := mysql.Code(err); got != want {
				t.Errorf("the number of %q is %q; want %q", err, got, want)
			}
		}
	}
	s := &pool{config: config{dialect: &mysql}}
	if mysql.Code(nil) != "" || s.undone(nil) || !s.undone(fmt.Errorf("x: %w", sqldriver.ErrBadConn)) {
		t.Error("no error, or one of a connection that sent nothing, was taken for another")
	}
}

func TestSeveralWritersAreSeenInTheVariables(t *testing.T) {
	for _, c := range []struct {
		read    map[string]string
		several bool
	}{
		{map[string]string{}, false},
		{map[string]string{"wsrep_on": "OFF", "wsrep_provider": "none"}, false},
		{map[string]string{"wsrep_on": "ON", "wsrep_provider": "none"}, false},
		{map[string]string{"wsrep_on": "ON", "wsrep_provider": "/usr/lib/galera/libgalera_smm.so"}, true},
		{map[string]string{"group_replication_group_name": "", "group_replication_single_primary_mode": "OFF"}, false},
		{map[string]string{"group_replication_group_name": "a", "group_replication_single_primary_mode": "ON"}, false},
		{map[string]string{"group_replication_group_name": "a", "group_replication_single_primary_mode": "OFF"}, true},
	} {
		if got := severalWriters(c.read); (got != "") != c.several {
			t.Errorf("%v: %q; want several writers: %v", c.read, got, c.several)
		}
	}
}

// galeraNode is a server that tells its variables, and takes nothing else.
type galeraNode struct{ sqldriver.Conn }

func (g galeraNode) Connect(context.Context) (sqldriver.Conn, error) { return g, nil }
func (g galeraNode) Driver() sqldriver.Driver                        { return nil }
func (g galeraNode) Close() error                                    { return nil }

func (g galeraNode) QueryContext(_ context.Context, query string, _ []sqldriver.NamedValue) (sqldriver.Rows, error) {
	if strings.HasPrefix(query, "SHOW GLOBAL VARIABLES") {
		return &variables{rest: [][2]string{{"wsrep_on", "ON"}, {"wsrep_provider", "/usr/lib/galera/libgalera_smm.so"}}}, nil
	}
	return nil, errors.New("a step was sent: " + query)
}

type variables struct{ rest [][2]string }

func (v *variables) Columns() []string { return []string{"Variable_name", "Value"} }
func (v *variables) Close() error      { return nil }

func (v *variables) Next(to []sqldriver.Value) error {
	if len(v.rest) == 0 {
		return io.EOF
	}
	to[0], to[1] = v.rest[0][0], v.rest[0][1]
	v.rest = v.rest[1:]
	return nil
}

// TestTransactionLockIsRefusedInAClusterWithSeveralWriters: a row that is locked on one node is free on
// the others.
func TestTransactionLockIsRefusedInAClusterWithSeveralWriters(t *testing.T) {
	db := sql.OpenDB(galeraNode{})
	defer db.Close()
	b := New(db, MySQL, nil)
	defer b.Close()
	for _, lock := range []func(context.Context, string) (*TxLock, error){
		Tx(b, &sql.Tx{}).Lock, Tx(b, &sql.Tx{}).TryLock,
	} {
		_, err := lock(t.Context(), "k")
		if !errors.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "several writers (Galera") {
			t.Errorf("it returned %v; want that the cluster has several writers", err)
		}
	}
}
