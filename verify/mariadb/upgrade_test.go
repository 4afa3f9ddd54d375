package mariadb_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// format1 are the tables of format 1, and one of its procedures: the one with which each of
// its steps on a line begins.
var format1 = []string{
	`CREATE TABLE fencelock_meta (name VARBINARY(32) NOT NULL PRIMARY KEY, value VARBINARY(1024)) ENGINE = InnoDB ROW_FORMAT = DYNAMIC`,
	`CREATE TABLE fencelock_line (
		lock_key VARBINARY(1024) NOT NULL PRIMARY KEY, last BIGINT NOT NULL, head BIGINT NOT NULL, mark VARBINARY(512), mark_id VARBINARY(64),
		CHECK (last BETWEEN 0 AND 9223372036854710272)) ENGINE = InnoDB ROW_FORMAT = DYNAMIC`,
	`CREATE TABLE fencelock_claim (
		lock_key VARBINARY(1024) NOT NULL, token BIGINT NOT NULL, span BIGINT NOT NULL, id VARBINARY(64) NOT NULL, capacity BIGINT NOT NULL,
		weight BIGINT NOT NULL, granted TINYINT NOT NULL, lingering TINYINT NOT NULL, expires BIGINT NOT NULL, since BIGINT NOT NULL,
		node BIGINT NOT NULL, news BIGINT, mark VARBINARY(512), owner VARBINARY(256) NOT NULL, note VARBINARY(1024) NOT NULL,
		PRIMARY KEY (lock_key, token),
		CHECK (token BETWEEN 1 AND 9223372036854710272 AND span BETWEEN 1 AND 65535 AND weight BETWEEN 1 AND capacity AND capacity <= 1048576),
		KEY fencelock_claim_id (id), KEY fencelock_claim_news (news)) ENGINE = InnoDB ROW_FORMAT = DYNAMIC`,
	`CREATE TABLE fencelock_rest (
		lock_key VARBINARY(1024) NOT NULL, id VARBINARY(64) NOT NULL, expires BIGINT NOT NULL, broken TINYINT NOT NULL,
		reason VARBINARY(1024) NOT NULL, node BIGINT NOT NULL, PRIMARY KEY (lock_key, id),
		KEY fencelock_rest_end (expires), KEY fencelock_rest_news (node, broken)) ENGINE = InnoDB ROW_FORMAT = DYNAMIC`,
	`INSERT INTO fencelock_meta (name, value) VALUES ('format', '1')`,
	`CREATE PROCEDURE fencelock_v3_open(IN p_key VARBINARY(1024))
		SELECT last, head, mark, mark_id FROM fencelock_line WHERE lock_key = p_key FOR UPDATE`,
}

// upgrade is the procedure of the schema that does it.
func upgrade(t *testing.T) string {
	t.Helper()
	schema, err := sqllock.Schema(sqllock.MySQL, nil)
	if err != nil {
		t.Fatal(err)
	}
	const head = "CREATE PROCEDURE IF NOT EXISTS fencelock_v4_upgrade()"
	_, rest, _ := strings.Cut(schema, head)
	body, _, ok := strings.Cut(rest, "$$")
	if !ok {
		t.Fatal("the schema has no procedure that brings tables to another format")
	}
	return head + body
}

// columnsAndChecks tells how the lines are made, but for the order of columns.
func columnsAndChecks(t *testing.T, db *sql.DB) (text string) {
	t.Helper()
	checks := "check_constraints WHERE"
	if onMySQL(t, db) {
		checks = "check_constraints JOIN information_schema.table_constraints USING (constraint_schema, constraint_name) WHERE"
	}
	for _, query := range []string{
		`SELECT GROUP_CONCAT(column_name, ' ', column_type, ' ', is_nullable, ' ', COALESCE(column_default, '-') ORDER BY column_name SEPARATOR '\n')
			FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'fencelock_line'`,
		`SELECT GROUP_CONCAT(check_clause ORDER BY check_clause SEPARATOR '\n')
			FROM information_schema.` + checks + ` constraint_schema = DATABASE() AND table_name = 'fencelock_line'`,
	} {
		var part string
		if err := db.QueryRow(query).Scan(&part); err != nil {
			t.Fatal(err)
		}
		text += part + "\n"
	}
	return text
}

// TestTablesOfFormat1AreBroughtToFormat2 has four programs do it at once, while somebody
// reads the tables, somebody holds a lock, somebody waits for it, and an id is at rest.
func TestTablesOfFormat1AreBroughtToFormat2(t *testing.T) {
	t.Parallel()
	name := newDatabase(t)
	dsn := dsnOf(server(t), name, "")
	db := openDSN(t, dsn)
	for _, text := range format1 {
		do(t, db, text)
	}
	refusal(t, sqllock.New(openDSN(t, dsn), sqllock.MySQL, nil), "missing", "CreateTables", "fencelock schema mysql")

	now := time.Now().UnixMicro()
	holder, waiter, rests := claim("k"), claim("k"), claim("free")
	do(t, db, "INSERT INTO fencelock_line VALUES ('k', ?, ?, 'done', 'someone'), ('free', ?, ?, NULL, NULL)", now+1, now, now, now+1)
	for i, c := range []driver.Claim{holder, waiter} {
		do(t, db, `INSERT INTO fencelock_claim (lock_key, token, span, id, capacity, weight, granted, lingering, expires, since, node, mark, owner, note)
			VALUES ('k', ?, 1, ?, 1048576, 1048576, ?, 0, ?, ?, 1, 'done', 'a program of before', '')`, now+int64(i), c.ID, i == 0, now+60e6, now)
	}
	do(t, db, "INSERT INTO fencelock_rest VALUES ('free', ?, ?, 1, 'enough', 1)", rests.ID, now+60e6)

	p := program(t, db)
	do(t, p, "BEGIN")
	do(t, p, "SELECT * FROM fencelock_line")
	admin := openDSN(t, dsnOf(server(t), "", ""))
	waiting := func(n int) {
		t.Helper()
		until(t, "all wait for who reads the table", func() bool {
			var found int
			if err := admin.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE db = ? AND command = 'Query'", name).Scan(&found); err != nil {
				t.Fatal(err)
			}
			return found == n
		})
	}
	var wg sync.WaitGroup
	// Two are at the same statement at once.
	const atOnce, programs = 2, 4
	do(t, db, upgrade(t))
	for range atOnce {
		conn := program(t, openDSN(t, dsn))
		wg.Go(func() {
			if _, err := conn.ExecContext(soon(t), "CALL fencelock_v4_upgrade()"); err != nil {
				t.Errorf("an upgrade beside others: %v", err)
			}
		})
	}
	waiting(atOnce)
	for i := range programs {
		wg.Go(func() {
			b := backend(t, openDSN(t, dsn))
			key := fmt.Sprint("of program ", i)
			ticket, err := b.Enter(soon(t), claim(key))
			if err == nil {
				err = b.Leave(soon(t), ticket, driver.Exit{})
			}
			if err != nil {
				t.Errorf("the first lock of a program that finds tables of format 1: %v", err)
			}
		})
	}
	waiting(atOnce + programs)
	do(t, p, "COMMIT")
	wg.Wait()

	// Who had looked at the format before cannot go on.
	var unknown *mysql.MySQLError
	if _, err := db.ExecContext(soon(t), "CALL fencelock_v3_open('k')"); !errors.As(err, &unknown) || unknown.Number != 1054 {
		t.Errorf("a step of format 1 was answered %v; want that it cannot be done", err)
	}
	var format string
	if err := db.QueryRow("SELECT value FROM fencelock_meta WHERE name = 'format'").Scan(&format); err != nil || format != "2" {
		t.Errorf("the format is %s, %v", format, err)
	}
	fresh := openDSN(t, newDSN(t, ""))
	leave(t, backend(t, fresh), hold(t, backend(t, fresh), claim("k")))
	if got, want := columnsAndChecks(t, db), columnsAndChecks(t, fresh); got != want {
		t.Errorf("the lines were made\n%s\nby CREATE TABLE they are\n%s", got, want)
	}

	b := backend(t, db)
	first := driver.Ticket{Claim: holder, Token: now}
	if err := b.Renew(soon(t), []driver.Ticket{first})[0]; err != nil {
		t.Errorf("Renew of a claim of before: %v", err)
	}
	second := wait(t, b, waiter)
	leave(t, b, first)
	if second = granted(t, b, second); second.Token != now+1 || second.Mark != "done" {
		t.Errorf("who waited was granted %+v", second)
	}
	leave(t, b, second)
	if _, err := b.Enter(soon(t), rests); !driver.Gone(err) || !strings.Contains(err.Error(), "enough") {
		t.Errorf("Enter of an id at rest answered %v; want ErrGone", err)
	}
	leave(t, b, hold(t, b, claim("free")))
	if _, err := b.Enter(soon(t), rests); !driver.Gone(err) {
		t.Errorf("Enter of an id at rest behind others answered %v; want ErrGone", err)
	}
	empty(t, b)
	sane(t, db)

	// A backup of before under the procedures of now.
	do(t, db, "UPDATE fencelock_meta SET value = '1' WHERE name = 'format'")
	refusal(t, backend(t, db), "format 1", "run the DDL")
}
