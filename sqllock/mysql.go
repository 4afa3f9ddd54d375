package sqllock

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// mysql is the engine for MariaDB and MySQL.
type mysql struct{ config }

func openMySQL(c config) *steps {
	return newServer(c, &mysql{c}, &mysqlErrors)
}

// notifier: there is none, so others have to poll.
func (m *mysql) notifier() notifier { return nil }

// statement calls a procedure of the schema. It is text without placeholders, so that
// neither prepared statements nor more than one statement in a query are needed, whatever
// the DSN says. Bytes are hexadecimal and numbers decimal, so there is nothing in it that a
// character set, an SQL mode or a key could turn into something else.
func (m *mysql) statement(step string, args []any) (text string, params []any) {
	literals := make([]string, len(args))
	for i, arg := range args {
		switch a := arg.(type) {
		case []byte:
			literals[i] = "X'" + hex.EncodeToString(a) + "'"
		case int64:
			literals[i] = strconv.FormatInt(a, 10)
		case bool:
			literals[i] = map[bool]string{true: "1", false: "0"}[a]
		default:
			panic(fmt.Sprintf("sqllock: no literal for %T", arg))
		}
	}
	return "CALL " + m.names.prefix + "v1_" + step + "(" + strings.Join(literals, ", ") + ")", nil
}

// createTables runs the schema, on a connection that is not used again: its SQL mode was
// changed. What others create at the same time is there, and what they lock is free soon.
func (m *mysql) createTables(ctx context.Context) error {
	conn, err := m.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	for _, text := range m.names.script(mysqlSchema) {
		_, err := conn.ExecContext(ctx, text)
		if code := mysqlCode(err); err != nil && code != "1050" && code != "1304" { // it exists
			return err
		}
	}
	return nil
}

// script splits SQL that is meant for the client of the database into statements, which end
// with $$.
func (n names) script(text string) (statements []string) {
	for part := range strings.SplitSeq(text, "$$\n") {
		if s := n.statement(part); s != "" {
			statements = append(statements, s)
		}
	}
	return statements
}

// prepare makes the row that hold locks: rows that are there before are locked without a gap.
func (m *mysql) prepare() string { return "prepare" }

// schemas is empty: the DSN names the database, and with it the tables.
func (m *mysql) schemas() string { return "" }

func (m *mysql) relisten() {}

// hold is a locking read, which leaves it to the first other one to choose the snapshot.
func (m *mysql) hold(_, id string) (text string, params []any) {
	return "SELECT COUNT(*) FROM " + m.names.prefix + "binding WHERE id = X'" + hex.EncodeToString([]byte(id)) +
		"' FOR UPDATE", nil
}

func (m *mysql) cluster(ctx context.Context) (string, error) {
	read, err := settings(ctx, m.db, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ("+clusterVariables+")")
	return severalWriters(read), err
}

// endsConnections asks for the setting only after an error that it may be the cause of: the connection was
// killed, or broke. It may be killed for other reasons as well.
func (m *mysql) endsConnections(ctx context.Context, err error) string {
	if code := mysqlCode(err); err == nil || isAnswer(err) || ctx.Err() != nil || code != "" && code != "1927" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	read, failed := settings(ctx, m.db, "SHOW GLOBAL VARIABLES LIKE 'completion_type'")
	if failed != nil || read["completion_type"] != "RELEASE" {
		return ""
	}
	return "the server's completion_type is RELEASE, so each COMMIT in a procedure ends the connection: " +
		"SET GLOBAL completion_type = 'NO_CHAIN', then open new connections"
}

// clusterVariables are those that severalWriters reads.
const clusterVariables = "'wsrep_on', 'wsrep_provider', 'group_replication_group_name', " +
	"'group_replication_single_primary_mode'"

// severalWriters names the kind of cluster with several writers that the variables of a server tell
// of, or is empty. Nobody can tell whether programs write to one node of Galera alone.
func severalWriters(read map[string]string) string {
	provider := read["wsrep_provider"]
	switch {
	case read["wsrep_on"] == "ON" && provider != "" && provider != "none":
		return "Galera, wsrep_on = ON"
	case read["group_replication_group_name"] != "" && read["group_replication_single_primary_mode"] == "OFF":
		return "Group Replication, group_replication_single_primary_mode = OFF"
	}
	return ""
}

// Steps on lines whose leases are renewed wait meanwhile, for some tens of microseconds each.
func (m *mysql) renewAtOnce() int { return 100 }

// leases writes a list that fencelock_v1_renew reads.
func (m *mysql) leases(ts []driver.Ticket) []any {
	var list []byte
	for i := range ts {
		t := &ts[i]
		list = fmt.Appendf(list, "%016x%04d%04d", clampTTL(t.TTL).Microseconds(), len(t.Key), len(t.ID))
		list = append(append(list, t.Key...), t.ID...)
	}
	return []any{list}
}

// mysqlCode returns the number of a server's error, or "". No driver is imported for it:
// the usual ones begin the text of such an error with "Error 1213 (40001): ", or with
// the same without the state.
func mysqlCode(err error) string {
	for ; err != nil; err = errors.Unwrap(err) {
		rest, ok := strings.CutPrefix(err.Error(), "Error ")
		if end := strings.IndexAny(rest, ": "); ok && end > 0 {
			return rest[:end]
		}
	}
	return ""
}

var mysqlErrors = serverErrors{
	code:    mysqlCode,
	open:    true,
	missing: []string{"1146", "1305"}, // no such table, no such procedure
	// A lock wait timeout, a deadlock, a row that has changed since the snapshot, a table that
	// was altered meanwhile, too many transactions. Of a time-out the server undoes only the
	// statement; the rest is rolled back by the procedure it was in.
	undone: []string{"1205", "1213", "1020", "1412", "1637"},
	// read_only or super_read_only, a read-only transaction, innodb_read_only, and a node of Galera or
	// of Group Replication that is not part of the cluster.
	moved: []string{"1290", "1792", "1836", "1874", "1036", "1047", "3100"},
	// No connection left, for all, for this user or for this hour; no thread; offline_mode; the host is
	// blocked; no room on the disk, no memory, no room for locks.
	refused: []string{"1040", "1203", "1226", "1135", "3032", "1129", "1114", "1021", "1037", "1041", "1206"},
	advice: []advice{
		{"1146 1305", "a table or a procedure of fencelock is missing: set Options.CreateTables, or run what " +
			"fencelock schema mysql prints; mysqldump leaves procedures out unless it has --routines"},
		{"1318 1054", "the procedures are those of another build, which the schema leaves alone: run the statements " +
			"that SELECT CONCAT('DROP PROCEDURE ', ROUTINE_NAME) FROM information_schema.ROUTINES WHERE " +
			"ROUTINE_SCHEMA = DATABASE() AND ROUTINE_NAME LIKE 'fencelock_v1_%' returns, then what fencelock " +
			"schema mysql prints"},
		{"1046", "no database is chosen: name one in the DSN"},
		{"1049", "there is no such database: create it, or name another in the DSN"},
		// The password has expired: 1820, 1862. The account is locked: 3118 in MySQL, 4151 in MariaDB.
		{"1045 1130 1251 1698 2054 2059 1820 1862 3118 4151",
			"the server refuses the user or the password: check both"},
		{"1044 1142 1143 1227 1370 1419", "a right is missing: the user needs SELECT, INSERT, UPDATE, DELETE and " +
			"EXECUTE in the database, and CREATE and CREATE ROUTINE to create the tables. The server says the " +
			"same of tables and procedures that do not exist: run what fencelock schema mysql prints as a user " +
			"who may create them"},
		{"1665", "the server's binary log cannot take it: set binlog_format to MIXED or ROW"},
		{"1264 1690 3819 4025", "rows in the tables are damaged: delete the rows of this lock from all tables, " +
			"then try again"},
	},
}
