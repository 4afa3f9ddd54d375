package swapsql

import (
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// DefaultPrefix begins the names of all tables in the embedded SQL.
const DefaultPrefix = "fencelock_"

// WithPrefix is embedded SQL of tables with another prefix.
func WithPrefix(text, prefix string) string {
	if prefix == DefaultPrefix {
		return text
	}
	return strings.ReplaceAll(text, DefaultPrefix, prefix)
}

// The codes of errors after which a statement has done nothing and may be sent again.
var (
	// A transaction that is not serializable, a deadlock, the lock_timeout of a role.
	undonePostgres = []string{"40001", "40P01", "55P03"}
	// A lock wait timeout, a deadlock, a row that has changed since the snapshot, a table that was altered
	// meanwhile, too many transactions.
	undoneMySQL = []string{"1205", "1213", "1020", "1412", "1637"}
)

// Dialect is a kind of database.
type Dialect struct {
	Name  string   // in lower case, as in a URL
	words []string // what differs from one dialect to the next, in pairs
	kind  kind
	// Where nobody tells of changes, lines are looked at no less often than this while somebody waits.
	longestPoll time.Duration
	// Of servers: code returns the code of a driver's error, or "". A statement that failed with one of undone has
	// done nothing and may be sent again; duplicate says that the row is there.
	code      func(error) string
	undone    []string
	duplicate string
}

type kind int

// Arguments are ? on SQLite, where {clock} is the clock of this host, and $1 on PostgreSQL. On MariaDB and MySQL they
// are in the text: neither prepared statements nor settings of the driver matter.
const (
	sqlite kind = iota
	postgres
	mysql
)

//go:embed schema/*.sql
var schemas embed.FS

// nowMySQL is SYSDATE, which nobody can set for a session as NOW can be by SET timestamp, less the session's offset
// from UTC. NOW and UTC_TIMESTAMP are one instant seen in two zones, which tells the offset also in the hour that an
// autumn night has twice. Where they have been set to another day it cannot be told that way.
const nowMySQL = `IF(ABS(TIMESTAMPDIFF(SECOND, NOW(6), SYSDATE(6))) < 1200,
	TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', SYSDATE(6))
	+ TIMESTAMPDIFF(MICROSECOND, NOW(6), UTC_TIMESTAMP(6)), CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED))`

// The dialects.
var (
	SQLite = &Dialect{
		Name: "sqlite", longestPoll: 10 * time.Millisecond, code: func(error) string { return "" },
		words: []string{
			"{merge}", "ON CONFLICT (lock_key, token) DO UPDATE SET written = excluded.written, " +
				"entry = json_patch(fencelock_history.entry, excluded.entry)",
			"{text}", "entry",
			"{hex}", "", "{/hex}", "", "{now}", "{clock}", "{append}", "arrivals || '{\"at\":' || {now} || ?",
			"{max}", "max", "{min}", "min", "{in}", "instr", "{bytes}", "", "{int}", "", "{txt}", "", "{no}", "x''",
			"{alone}", "1 = 1", "{sure}", "", "{values}", "VALUES (", "{end}", ") ON CONFLICT DO NOTHING",
			"{stamp}", "came = {clock}, ", "{came}", "{clock}", "{lazily}", "",
			"{told}", "substr(? || news, 1, 300)", "{untold}", "substr((version + 1) || ' ;' || news, 1, 300)",
		},
	}
	Postgres = &Dialect{
		Name: "postgres", kind: postgres, undone: undonePostgres, code: sqlState,
		longestPoll: 250 * time.Millisecond,
		words: []string{
			"{merge}", "ON CONFLICT (lock_key, token) DO UPDATE SET written = excluded.written, " +
				"entry = (fencelock_history.entry::jsonb || excluded.entry::jsonb)::text",
			"{text}", "entry", "{hex}", "encode(", "{/hex}", ", 'hex')",
			"{now}", "(date_part('epoch', clock_timestamp()) * 1000000)::bigint",
			"{max}", "GREATEST", "{min}", "LEAST", "{in}", "strpos", "{bytes}", "::bytea", "{int}", "::bigint",
			"{txt}", "::text", "{no}", "''", "{append}", "arrivals || '{\"at\":' || {now} || ?::text",
			"{unlocked}", "pg_try_advisory_xact_lock_shared(hashtextextended(encode(id, 'escape'), 0))",
			"{sure}", "WITH sure AS (DELETE FROM fencelock_lease WHERE false) ",
			"{alone}", "1 = 1", "{values}", "VALUES (", "{end}", ") ON CONFLICT DO NOTHING",
			"{stamp}", "", "{came}", "0",
			"{lazily}", " FROM (SELECT set_config('synchronous_commit', 'off', true)) lazily",
			"{told}", "substr(?::text || news, 1, 300)", "{untold}", "substr((version + 1) || ' ;' || news, 1, 300)",
		},
	}
	MySQL = &Dialect{
		Name: "mysql", kind: mysql, undone: undoneMySQL,
		code: mysqlCode, duplicate: "1062", longestPoll: 250 * time.Millisecond,
		words: []string{
			"{merge}", "ON DUPLICATE KEY UPDATE written = VALUES(written), " +
				"entry = JSON_MERGE_PATCH(entry, VALUES(entry))",
			"{text}", "CAST(entry AS BINARY)", // whatever the character set of the session is
			"{hex}", "", "{/hex}", "", "{now}", nowMySQL,
			"{max}", "GREATEST", "{append}", "CONCAT(arrivals, '{\"at\":', {now}, ?)", "{in}", "INSTR", "{bytes}", "",
			"{txt}", "", "{int}", "",
			"{sure}", "", "{values}", "SELECT ", "{end}", " FROM DUAL WHERE {alone}",
			"{stamp}", "", "{came}", "0", "{lazily}", "", "{no}", "X''",
			"{told}", "LEFT(CONCAT(?, news), 300)", "{untold}", "LEFT(CONCAT(version + 1, ' ;', news), 300)",
		},
	}
)

// Schema returns the DDL of the tables, which may be run more than once.
func (d *Dialect) Schema(prefix string) string {
	text, err := schemas.ReadFile("schema/" + d.Name + ".sql")
	if err != nil {
		panic(err) // it is part of the program
	}
	return WithPrefix(string(text), prefix)
}

// SQL is a statement of this package on tables with that prefix.
func (d *Dialect) SQL(text, prefix string) string { return d.replacer(prefix)(text) }

// replacer puts the words of the dialect, the prefix of the tables and the numbers of marks into statements.
func (d *Dialect) replacer(prefix string) func(text string) string {
	first := strings.NewReplacer(d.words...)
	var mu sync.RWMutex
	known := map[string]string{}
	return func(text string) string {
		mu.RLock()
		replaced, ok := known[text]
		mu.RUnlock()
		if ok {
			return replaced
		}
		replaced = WithPrefix(first.Replace(first.Replace(text)), prefix) // some words have others in them
		if d.kind == postgres {
			parts := strings.Split(replaced, "?")
			for i := range parts[1:] {
				parts[i] += "$" + strconv.Itoa(i+1)
			}
			replaced = strings.Join(parts, "")
		}
		mu.Lock()
		defer mu.Unlock()
		if len(known) >= mostTexts {
			clear(known)
		}
		known[text] = replaced
		return replaced
	}
}

// mostTexts bounds how many statements are remembered.
const mostTexts = 512

// Clocked is a statement on SQLite with its marks, and which of its arguments is the clock of this host, or -1. The
// driver asks for the name of each mark that has one.
func Clocked(text string) (marked string, clock int) {
	clock = -1
	var b strings.Builder
	marks := 0
	for i, part := range strings.Split(text, "{clock}") {
		switch {
		case i == 1:
			clock = marks
			marks++
			fallthrough
		case i > 1:
			b.WriteString("?" + strconv.Itoa(clock+1))
		}
		b.WriteString(part)
		marks += strings.Count(part, "?")
	}
	return b.String(), clock
}

// bind puts arguments, which are []byte, string, or int64, into a statement for a server that takes literals.
func (d *Dialect) bind(text string, args []any) (string, []any) {
	if d.kind != mysql {
		return text, args
	}
	b := make([]byte, 0, 2*len(text))
	for i := 0; ; i++ {
		before, after, more := strings.Cut(text, "?")
		b = append(b, before...)
		if !more {
			return string(b), nil
		}
		text = after
		b = appendLiteral(b, args[i])
	}
}

// appendLiteral appends what has nothing in it that a character set, an SQL mode or a key could turn into something
// else.
func appendLiteral(b []byte, arg any) []byte {
	switch a := arg.(type) {
	case []byte:
		return append(hex.AppendEncode(append(b, "X'"...), a), '\'')
	case string:
		return appendLiteral(b, []byte(a))
	case int64:
		return strconv.AppendInt(b, a, 10)
	}
	panic(fmt.Sprintf("swapsql: no literal for %T", arg))
}

// ascii writes JSON without bytes above 127, so that it fits into a column of any encoding.
func ascii(json []byte) string {
	if !slices.ContainsFunc(json, func(b byte) bool { return b >= 0x80 }) {
		return string(json)
	}
	var b strings.Builder
	for _, r := range string(json) {
		switch {
		case r < 0x80:
			b.WriteByte(byte(r))
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		}
	}
	return b.String()
}

// Code returns the code of a driver's error, or "". No driver is imported for it.
func (d *Dialect) Code(err error) string { return d.code(err) }

// Undone reports whether the database has rolled back a statement because of what others did at the same time. It may
// be sent again.
func (d *Dialect) Undone(err error) bool { return slices.Contains(d.undone, d.code(err)) }

// sqlState returns the SQLSTATE of an error of pgx or lib/pq, which have this method, or "".
func sqlState(err error) string {
	var s interface{ SQLState() string }
	if errors.As(err, &s) {
		return s.SQLState()
	}
	return ""
}

// mysqlCode returns the number of a server's error, or "". Drivers begin the text of such an
// error with "Error 1213 (40001): ", or with the same without the state.
func mysqlCode(err error) string {
	for ; err != nil; err = errors.Unwrap(err) {
		rest, ok := strings.CutPrefix(err.Error(), "Error ")
		if end := strings.IndexAny(rest, ": "); ok && end > 0 {
			return rest[:end]
		}
	}
	return ""
}
