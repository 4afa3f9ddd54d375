package sql_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
)

// TestPoolerThatMixesUpStatements has pgx prepare statements, as it does by default, behind
// a pooler that hands one connection of the server to several clients. Newer ones tell their
// statements apart.
func TestPoolerThatMixesUpStatements(t *testing.T) {
	only(t, postgres.with("PgBouncer"), func(t *testing.T, s *store) {
		use(t, s.polling(t), "k")
		through := func(config ...string) (failed error) {
			s.behind(t, testserver.PgBouncer(t, s.on, testserver.Config(append(config, "default_pool_size = 1")...)))
			for i := 0; failed == nil && i < 10; i++ {
				b := s.new(t, s.open(t), nil)
				var ticket driver.Ticket
				if ticket, failed = b.Enter(soon(t), claim(fmt.Sprint("k", i))); failed == nil {
					failed = b.Leave(soon(t), ticket, driver.Exit{})
				}
			}
			return failed
		}
		var mixing []string
		if testserver.PgBouncerKeepsStatements(t) {
			mixing = append(mixing, "max_prepared_statements = 0")
			well(t, "behind a pooler that keeps prepared statements", through("max_prepared_statements = 100"))
		}
		err := through(mixing...)
		if !permanent(err) || !strings.Contains(err.Error(), "default_query_exec_mode=exec") {
			t.Errorf("prepared statements behind a pooler answered %v; want an error that says what to do", err)
		}
		leaveAll(t, s.backendOn(t, s.db))
	})
}

// TestBinaryLogNeedsNoMoreRights has a server that keeps a binary log, and a user who may
// do everything in one database and nothing beyond: he can create what is needed.
func TestBinaryLogNeedsNoMoreRights(t *testing.T) {
	t.Parallel()
	t.Run("MariaDB", func(t *testing.T) {
		s := ownServer(t, mariaDB, testserver.Config("log-bin=binlog", "server-id=1", "binlog_format=MIXED"))
		if !ask[bool](t, s, "SELECT @@log_bin AND NOT @@log_bin_trust_function_creators") {
			t.Fatal("the server keeps no binary log")
		}
		s.do(t, "CREATE USER ali IDENTIFIED BY 'open'")
		s.do(t, "GRANT ALL ON "+s.name+".* TO ali")
		s.dsn = s.as(t, "ali", "open")
		essentials(t, s.polling(t), s.polling(t))
		s.do(t, "SET GLOBAL binlog_format = 'STATEMENT'")
		_, err := s.polling(t).Enter(soon(t), claim("k"))
		if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "binlog_format") {
			t.Errorf("Enter that the binary log cannot take answered %v; want ErrPermanent that says what to do",
				err)
		}
	})
}
