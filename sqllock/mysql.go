package sqllock

import (
	"context"
	"strings"

	"github.com/fencelock/fencelock/internal/swapsql"
	"github.com/fencelock/fencelock/sqllock/internal/reply"
)

// createMySQL runs the schema, one statement after the other, on a connection that is not used again. What others
// create at the same time is there, and what they lock is free soon.
func createMySQL(ctx context.Context, c *config, schema string) error {
	conn, err := c.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer swapsql.CloseConn(conn)
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
	Table: reply.MySQL.With(mysqlAdvice...), conns: newPool, examine: examineMySQL, create: createMySQL,
	missing: []string{"1146"}, // no such table
	// A right is missing: a session learns of a new one when it begins.
	gone: []string{"1044", "1142", "1143"},
}

var mysqlAdvice = []reply.Advice{
	{Verdict: reply.Lasting, Codes: "1146 1054", Text: "a table of fencelock is missing or another one: set " +
		"Options.CreateTables, or run what fencelock schema mysql prints"},
	{Verdict: reply.Lasting, Codes: "1044 1142 1143 1227", Text: "a right is missing: the user needs SELECT, INSERT, " +
		"UPDATE and DELETE in the database, and CREATE to create the tables. The server says the same of " +
		"tables that do not exist: run what fencelock schema mysql prints as a user who may create them"},
	{Verdict: reply.Lasting, Codes: "1264 1690 3819 4025", Text: "rows in the tables are damaged: delete the rows of " +
		"this lock from all tables, then try again"},
}
