package sql_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/record"
	"github.com/fencelock/fencelock/sqllock"
)

// TestHistoryOfOlderTables has tables that were made before the history. Who may create tables
// creates it, and others are told how.
func TestHistoryOfOlderTables(t *testing.T) {
	each(t, all, func(t *testing.T, s *store) {
		ctx := context.Background()
		maker := s.polling(t)
		must(t, maker.Leave(ctx, hold(t, maker, claim("k")), driver.Exit{}))
		s.do(t, "DROP TABLE fencelock_history")

		entries := []record.Entry{{Key: "k", Token: 1, Owner: "somebody"}}
		keep := record.Bounds{Keep: 10, For: time.Hour}
		b := s.new(t, s.open(t), nil)
		_, err := b.History(ctx, "k", 1)
		for what, err := range map[string]error{"History": err, "Record": b.Record(ctx, entries, keep)} {
			if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), s.schemaCommand()) {
				t.Errorf("%s without its table answered %v; want %s", what, err, s.schemaCommand())
			}
		}
		if s.dialect != sqllock.SQLite {
			must(t, b.Leave(ctx, hold(t, b, claim("another")), driver.Exit{})) // a lock needs no history
		}
		if s.dialect != sqllock.SQLite {
			ddl, err := sqllock.Schema(s.dialect, nil) // as the error says
			must(t, err)
			s.script(t, ddl)
		}
		b = s.polling(t)
		must(t, b.Record(ctx, entries, keep))
		got, err := b.History(ctx, "k", 10)
		must(t, err)
		if len(got) != 1 || got[0] != entries[0] {
			t.Errorf("the history is %+v; want %+v", got, entries)
		}
	})
}

// script runs DDL.
func (s *store) script(t testing.TB, ddl string) {
	t.Helper()
	if s.dialect == sqllock.Postgres {
		s.do(t, ddl)
		return
	}
	for text := range strings.SplitSeq(ddl, ";\n") {
		if strings.Contains(text, "CREATE TABLE") {
			s.do(t, text)
		}
	}
}
