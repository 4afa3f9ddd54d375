package swapsql

import (
	"fmt"
	"strings"
)

// Dialect is a kind of database.
type Dialect struct {
	name     string
	words    *strings.Replacer // what differs from one dialect to the next
	numbered bool              // arguments are $1, $2, …
	oneWrite bool              // one writer at a time in each process, or all wait for the file
	schema   []string
}

// The dialects.
var (
	SQLite = &Dialect{name: "sqlite", oneWrite: true, schema: schema("BLOB", "TEXT", ""), words: words(
		"{now}", "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
		"{later}", "(1000 + CAST(unixepoch('subsec') * 1000000 AS INTEGER))", // its clock counts milliseconds
		"{max}", "max",
		"{records}", "group_concat(hex(id) || ':' || expires, ',')",
		"{insert}", "INSERT OR IGNORE", "{none}", "",
		"{upsert}", onConflict("max"),
	)}
	Postgres = &Dialect{name: "postgres", numbered: true, schema: schema("bytea", "text", ""), words: words(
		"{now}", "(date_part('epoch', clock_timestamp()) * 1000000)::bigint",
		"{later}", "(date_part('epoch', clock_timestamp()) * 1000000)::bigint",
		"{max}", "GREATEST",
		"{records}", "string_agg(encode(id, 'hex') || ':' || expires, ',')",
		"{insert}", "INSERT", "{none}", "ON CONFLICT DO NOTHING",
		"{upsert}", onConflict("GREATEST"),
	)}
	MySQL = &Dialect{name: "mysql", schema: schema("VARBINARY(1024)", "LONGTEXT", " CHARSET utf8mb4"), words: words(
		"{now}", "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)",
		"{later}", "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)",
		"{max}", "GREATEST",
		"{records}", "GROUP_CONCAT(HEX(id), ':', expires)",
		"{insert}", "INSERT IGNORE", "{none}", "",
		"{upsert}", "ON DUPLICATE KEY UPDATE expires = GREATEST(expires, VALUES(expires)), renewals = renewals + 1",
	)}
)

func words(pairs ...string) *strings.Replacer { return strings.NewReplacer(pairs...) }

func onConflict(largest string) string {
	return "ON CONFLICT (lock_key, id) DO UPDATE SET expires = " + largest +
		"(fencelock_lease.expires, excluded.expires), renewals = fencelock_lease.renewals + 1"
}

// schema is the two tables: a row for each line, and one for each lease that is renewed apart
// from its line. What counts renewals makes each of them change its row.
func schema(binary, text, options string) []string {
	short := strings.Replace(binary, "1024", "256", 1)
	return []string{
		fmt.Sprintf(`CREATE TABLE IF NOT EXISTS fencelock_swap (
	lock_key %s NOT NULL PRIMARY KEY,
	version BIGINT NOT NULL,
	last BIGINT NOT NULL,
	mark %s NOT NULL,
	marked_by %s NOT NULL,
	holder %s NOT NULL,
	expires BIGINT NOT NULL,
	renewals BIGINT NOT NULL,
	line %s NOT NULL
)%s`, binary, binary, short, short, text, options),
		fmt.Sprintf(`CREATE TABLE IF NOT EXISTS fencelock_lease (
	lock_key %s NOT NULL,
	id %s NOT NULL,
	expires BIGINT NOT NULL,
	renewals BIGINT NOT NULL,
	PRIMARY KEY (lock_key, id)
)%s`, binary, short, options),
	}
}

// Schema has the statements that CreateTables runs.
func (d *Dialect) Schema() []string { return d.schema }

// sql puts the words of the dialect into a statement, and numbers its arguments.
func (d *Dialect) sql(text string) string {
	text = d.words.Replace(text)
	if !d.numbered {
		return text
	}
	parts := strings.Split(text, "?")
	for i := range parts[1:] {
		parts[i] += fmt.Sprintf("$%d", i+1)
	}
	return strings.Join(parts, "")
}

// The statements. Each is run by itself, in its own transaction.
const (
	readSQL = `SELECT {now}, l.version, l.last, l.mark, l.marked_by, l.holder, l.expires, l.line,
	(SELECT {records} FROM fencelock_lease WHERE lock_key = ?)
FROM (SELECT 1 AS one) o LEFT JOIN fencelock_swap l ON l.lock_key = ?`
	insertSQL = `{insert} INTO fencelock_swap
	(lock_key, version, last, mark, marked_by, holder, expires, renewals, line)
VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?) {none}`
	swapSQL = `UPDATE fencelock_swap SET version = ?, last = ?, mark = ?, marked_by = ?,
	expires = CASE WHEN holder = ? THEN {max}(expires, ?) ELSE ? END, holder = ?, line = ?
WHERE lock_key = ? AND version = ?`
	endedSQL  = ` AND expires = ?`
	beforeSQL = ` AND {now} < ?`
	holderSQL = `UPDATE fencelock_swap SET expires = {max}(expires, {later} + ?), renewals = renewals + 1
WHERE lock_key = ? AND holder = ? AND expires > {now}`
	recordSQL = `UPDATE fencelock_lease SET expires = {max}(expires, {later} + ?), renewals = renewals + 1
WHERE lock_key = ? AND id = ? AND expires > {now}`
	lendSQL = `INSERT INTO fencelock_lease (lock_key, id, expires, renewals)
VALUES (?, ?, {later} + ?, 0) {upsert}`
	dropSQL        = `DELETE FROM fencelock_lease WHERE lock_key = ? AND id = ?`
	forgetSQL      = `DELETE FROM fencelock_swap WHERE last < ? AND line = '' AND length(mark) = 0`
	endedLeasesSQL = `DELETE FROM fencelock_lease WHERE expires <= {now}`
	purgeSQL       = `DELETE FROM fencelock_lease WHERE lock_key = ? AND id = ? AND expires <= {now}`
	listSQL        = `SELECT lock_key FROM fencelock_swap
WHERE lock_key >= ? AND line <> '' ORDER BY lock_key LIMIT 200`
	pollSQL = `SELECT lock_key, version FROM fencelock_swap WHERE lock_key IN (?`
)
