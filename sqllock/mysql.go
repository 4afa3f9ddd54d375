package sqllock

import (
	"context"
	"strings"

	"github.com/fencelock/fencelock/internal/swapsql"
)

// createMySQL runs the schema, one statement after the other, on a connection that is not used again. What others
// create at the same time is there, and what they lock is free soon.
func createMySQL(ctx context.Context, c *config, schema string) error {
	conn, err := c.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	settings := "COMMIT AND NO CHAIN NO RELEASE; SET SESSION TRANSACTION READ WRITE; SET autocommit = 1; "
	for text := range strings.SplitSeq(settings+withoutComments(schema), ";") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		_, err := conn.ExecContext(ctx, text)
		if code := swapsql.MySQL.Code(err); err != nil && code != "1050" { // it exists
			return err
		}
	}
	return nil
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

var mysql = dialect{
	Dialect: swapsql.MySQL, conns: newPool, examine: examineMySQL, create: createMySQL,
	missing: []string{"1146"}, // no such table
	// A right is missing: a session learns of a new one when it begins.
	gone: []string{"1044", "1142", "1143"},
	// read_only or super_read_only, a read-only transaction, innodb_read_only, and a node of Galera or
	// of Group Replication that is not part of the cluster.
	moved: []string{"1290", "1792", "1836", "1874", "1036", "1047", "3100"},
	advice: []advice{
		// No connection left, for all, for this user or for this hour; no thread; offline_mode; the host is
		// blocked; no room on the disk, no memory, no room for locks.
		{verdict: refused, codes: "1040 1203 1226 1135 3032 1129 1114 1021 1037 1041 1206"},
		{verdict: lasting, codes: "1146 1054", text: "a table of fencelock is missing or another one: set " +
			"Options.CreateTables, or run what fencelock schema mysql prints"},
		{verdict: lasting, codes: "1046", text: "no database is chosen: name one in the DSN"},
		{verdict: lasting, codes: "1049", text: "there is no such database: create it, or name another in the DSN"},
		// The password has expired: 1820, 1862. The account is locked: 3118 in MySQL, 4151 in MariaDB.
		{verdict: lasting, codes: "1045 1130 1251 1698 2054 2059 1820 1862 3118 4151",
			text: "the server refuses the user or the password: check both"},
		{verdict: lasting, codes: "1044 1142 1143 1227", text: "a right is missing: the user needs SELECT, INSERT, " +
			"UPDATE and DELETE in the database, and CREATE to create the tables. The server says the same of " +
			"tables that do not exist: run what fencelock schema mysql prints as a user who may create them"},
		{verdict: lasting, codes: "1665", text: "the server's binary log cannot take it: set binlog_format to " +
			"MIXED or ROW"},
		{verdict: lasting, codes: "1264 1690 3819 4025", text: "rows in the tables are damaged: delete the rows of " +
			"this lock from all tables, then try again"},
	},
}
