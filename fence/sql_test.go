package fence_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
)

// The guards on real databases are tested in verify/fence.

func TestNoRowIsStale(t *testing.T) {
	steps.Is(t, "Rows", fence.Rows(driver.RowsAffected(0), nil), fence.ErrStale)
	for _, n := range []int64{1, 2} { // MySQL counts 2 for a row that an INSERT … ON DUPLICATE KEY changed
		steps.Well(t, n, fence.Rows(driver.RowsAffected(n), nil))
	}
}

func TestFailedStatementIsNotStale(t *testing.T) {
	broken := errors.New("connection reset")
	steps.Same(t, "Rows", fence.Rows(nil, broken), broken)
	if err := fence.Rows(driver.ResultNoRows, nil); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("a driver that does not count: %v", err)
	}
}

//verify:fault Security | names of tables, prefixes
func TestTableNamesAreChecked(t *testing.T) {
	for _, name := range []string{"", "marks", "Marks_2", "_m", "app.marks", strings.Repeat("a", 63)} {
		text, err := fence.NewTable(fence.Postgres, name).Schema()
		if name == "" {
			name = "fencelock_marks"
		}
		if err != nil || !strings.Contains(text, "CREATE TABLE IF NOT EXISTS "+name+" (") {
			t.Errorf("%q: %v\n%s", name, err, text)
		}
	}
	for _, name := range []string{
		"2m", "a b", "a;b", "a.b.c", ".a", "a.", `"a"`, "`a`", "a--", "a'", "[a]", "ä", "a\n", "a\x00", " a", "x; DROP TABLE y",
		strings.Repeat("a", 64), strings.Repeat("a", 64) + ".b",
	} {
		table := fence.NewTable(fence.SQLite, name)
		if text, err := table.Schema(); err == nil {
			t.Errorf("%q got into\n%s", name, text)
		}
		if err := table.Advance(t.Context(), &sql.Tx{}, "a", 1); err == nil {
			t.Errorf("%q was used", name)
		}
	}
	if _, err := fence.NewTable(0, "").Schema(); err == nil || !strings.Contains(err.Error(), "fence.Postgres") {
		t.Error(err)
	}
}

func TestAdvanceChecksWhatItIsGiven(t *testing.T) {
	table := fence.NewTable(fence.SQLite, "")
	tx := &sql.Tx{} // would panic if it were asked anything
	for _, tok := range []fence.Token{0, -1} {
		steps.Is(t, int64(tok), table.Advance(t.Context(), tx, "a", tok), fence.ErrNoToken)
	}
	for _, resource := range []string{"", strings.Repeat("a", 1025)} {
		if err := table.Advance(t.Context(), tx, resource, 1); err == nil || !strings.Contains(err.Error(), "1 to 1024 bytes") {
			t.Errorf("%d bytes: %v", len(resource), err)
		}
	}
	// On the pool the comparison and the write would be two steps.
	for _, no := range []fence.Tx{&sql.DB{}, (*sql.DB)(nil), nil} {
		if err := table.Advance(t.Context(), no, "a", 1); err == nil || !strings.Contains(err.Error(), "transaction") {
			t.Errorf("%T: %v", no, err)
		}
	}
}
