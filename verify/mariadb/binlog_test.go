package mariadb_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
)

// TestBinaryLogNeedsNoMoreRights has a server that keeps a binary log, and a user who may
// do everything in one database and nothing beyond: he can create what is needed.
func TestBinaryLogNeedsNoMoreRights(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t, testserver.Config("log-bin=binlog", "server-id=1", "binlog_format=MIXED"))
	root := openDSN(t, dsnOf(s, "locks", ""))
	var on bool
	if err := root.QueryRow("SELECT @@log_bin AND NOT @@log_bin_trust_function_creators").Scan(&on); err != nil || !on {
		t.Fatalf("the server keeps no binary log, %v", err)
	}
	do(t, root, "CREATE USER ali")
	do(t, root, "GRANT ALL ON locks.* TO ali")
	dsn := fmt.Sprintf("ali@tcp(%s)/locks", s.Addr())
	essentials(t, backend(t, openDSN(t, dsn)), backend(t, openDSN(t, dsn)))
	do(t, root, "SET GLOBAL binlog_format = 'STATEMENT'")
	var permanent *driver.PermanentError
	_, err := backend(t, openDSN(t, dsn)).Enter(soon(t), claim("k"))
	if !errors.As(err, &permanent) || !strings.Contains(err.Error(), "binlog_format") {
		t.Errorf("Enter that the binary log cannot take answered %v; want a PermanentError that says what to do", err)
	}
}
