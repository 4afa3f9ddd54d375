// Package reply says of an error of a database whether the database refused, whether that may change, and what to do.
package reply

import (
	"slices"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/swapsql"
)

// Verdict is what an error of the database says of the step: that it may have happened, that the
// database refused it and may do it later, or that asking again is useless.
type Verdict int

// The verdicts.
const (
	Unknown Verdict = iota
	Refused
	Lasting
)

// Of returns err with the verdict on it.
func (v Verdict) Of(err error) error {
	switch v {
	case Refused:
		return driver.Refused(err)
	case Lasting:
		return driver.Permanent(err)
	}
	return err
}

// Advice says what some errors mean, and what to do about them, if that is known. Errors are known by their codes, or,
// where there are none of their own, by a part of their text.
type Advice struct {
	Verdict
	Codes string
	Texts []string
	Text  string
	// Uncoded says that the texts count only where the error has no code. A client that prefers TLS goes on without it,
	// and its error has both answers.
	Uncoded bool
}

// Table is what the errors of a database mean.
type Table struct {
	*swapsql.Dialect
	// Moved are codes that say that another server must be asked: this one takes no writes, so the step did not
	// happen.
	Moved  []string
	Advice []Advice
}

// With returns a table that also has the advice on what the caller keeps in the database.
func (t Table) With(own ...Advice) Table {
	t.Advice = slices.Concat(t.Advice, own)
	return t
}

// Meaning returns the advice on an error.
func (t *Table) Meaning(err error) (text string, v Verdict) {
	if Says(err, "sql: database is closed") {
		return "the program has closed the database", Lasting
	}
	code := t.Code(err)
	for _, a := range t.Advice {
		switch {
		case code != "" && slices.Contains(strings.Fields(a.Codes), code):
			return a.Text, a.Verdict
		case Says(err, a.Texts...) && !(a.Uncoded && code != ""):
			return a.Text, a.Verdict
		}
	}
	switch {
	case slices.Contains(t.Moved, code):
		return "the server is a standby or read-only: connect to the primary", Refused
	case t.Undone(err):
		return "", Refused
	}
	return "", Unknown
}

// Says reports that err has one of those texts.
func Says(err error, texts ...string) bool {
	return err != nil &&
		slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(err.Error(), text) })
}

// Postgres is PostgreSQL, and the poolers before it.
var Postgres = Table{
	Dialect: swapsql.Postgres,
	// A read-only transaction, or one during recovery; no lock on a table, or no unlogged table,
	// during recovery.
	Moved: []string{"25006", "55000", "0A000"},
	Advice: []Advice{
		// No memory, no room on the disk, no connection left, and a server that starts, ends or recovers.
		{Verdict: Refused, Codes: "53000 53100 53200 53300 53400 57P03"},
		// PgBouncer has no server for the statement.
		{Verdict: Refused, Texts: []string{"no more connections allowed", "query_wait_timeout",
			"server login has been failing", "server login failed"}},
		// These have codes that the server also has for others.
		{Verdict: Refused, Texts: []string{"is not currently accepting connections"}, Text: "nobody may connect to " +
			"the database: ALTER DATABASE with ALLOW_CONNECTIONS true"},
		{Verdict: Lasting, Texts: []string{"cannot connect to invalid database"}},
		{Verdict: Lasting, Texts: []string{"permission denied for database"}, Text: "the role lacks a right: GRANT " +
			"CONNECT ON DATABASE"},
		{Verdict: Lasting, Texts: []string{"server refused TLS connection", "SSL is not enabled on the server"},
			Uncoded: true, Text: "the server has no TLS: turn it on there, or leave it out here (sslmode=disable)"},
		{Verdict: Lasting, Codes: "28P01 28000", Text: "the server does not let us in: check user, password and " +
			"pg_hba.conf"},
		{Verdict: Lasting, Codes: "3D000", Text: "there is no such database: create it, or correct the URL"},
		{Verdict: Lasting, Codes: "26000 42P05", Text: "a pooler mixes up prepared statements: open the database " +
			"with default_query_exec_mode=exec (pgx) or binary_parameters=yes (lib/pq)"},
	},
}

// MySQL is MariaDB and MySQL.
var MySQL = Table{
	Dialect: swapsql.MySQL,
	// read_only or super_read_only, a read-only transaction, innodb_read_only, and a node of Galera or
	// of Group Replication that is not part of the cluster.
	Moved: []string{"1290", "1792", "1836", "1874", "1036", "1047", "3100"},
	Advice: []Advice{
		// No connection left, for all, for this user or for this hour; no thread; offline_mode; the host is
		// blocked; no room on the disk, no memory, no room for locks.
		{Verdict: Refused, Codes: "1040 1203 1226 1135 3032 1129 1114 1021 1037 1041 1206"},
		{Verdict: Lasting, Codes: "1046", Text: "no database is chosen: name one in the DSN"},
		{Verdict: Lasting, Codes: "1049", Text: "there is no such database: create it, or name another in the DSN"},
		{Verdict: Lasting, Texts: []string{"server does not support TLS"},
			Text: "the server has no TLS: turn it on there, or leave it out here (tls=false)"},
		{Verdict: Lasting, Codes: "3159", Text: "the server wants TLS: add tls=true to the DSN"},
		// The password has expired: 1820, 1862. The account is locked: 3118 in MySQL, 4151 in MariaDB, which also
		// blocks one after wrong passwords: 4150.
		{Verdict: Lasting, Codes: "1045 1130 1251 1698 2054 2059 1820 1862 3118 4150 4151",
			Text: "the server refuses the user or the password: check both"},
		{Verdict: Lasting, Codes: "1665", Text: "the server's binary log cannot take it: set binlog_format to " +
			"MIXED or ROW"},
	},
}
