package mariadb_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// refusal must be a PermanentError from every call, and mention words.
func refusal(t *testing.T, b *sqllock.Backend, words ...string) {
	t.Helper()
	ctx := soon(t)
	ticket := driver.Ticket{Claim: claim("k"), Token: 1}
	calls := map[string]error{
		"Enter": second(b.Enter(ctx, claim("k"))),
		"Await": second(b.Await(ctx, ticket)),
		"Renew": b.Renew(ctx, []driver.Ticket{ticket})[0],
		"Leave": b.Leave(ctx, ticket, driver.Exit{}),
		"Break": b.Break(ctx, "k", 1, ""),
		"Line":  second(b.Line(ctx, "k")),
	}
	for _, err := range b.Lines(ctx, "") {
		calls["Lines"] = err
	}
	for name, err := range calls {
		var p *driver.PermanentError
		if !errors.As(err, &p) {
			t.Errorf("%s answered %v; want a PermanentError", name, err)
			continue
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s answered %q; want it to say %q", name, err, word)
			}
		}
		if strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s answered %q, with the password in it", name, err)
		}
	}
	if len(calls) != 7 {
		t.Error("Lines yielded no error")
	}
}

func TestWhatCannotWorkSaysSo(t *testing.T) {
	create := &sqllock.Options{CreateTables: true}
	s := server(t)
	t.Run("MissingTables", func(t *testing.T) {
		b := sqllock.New(openDSN(t, newDSN(t, "")), sqllock.MySQL, nil)
		defer b.Close()
		refusal(t, b, "missing", "CreateTables", "fencelock schema mysql")
	})
	t.Run("TablesDroppedLater", func(t *testing.T) {
		db := openDSN(t, newDSN(t, ""))
		b := backend(t, db)
		hold(t, b, claim("k"))
		for _, table := range []string{"claim", "line", "rest", "meta"} {
			do(t, db, "DROP TABLE fencelock_"+table)
		}
		refusal(t, b, "missing")
	})
	t.Run("Prefix", func(t *testing.T) {
		for _, prefix := range []string{"a b", "x;", "x`", "1x", "ä", strings.Repeat("x", 33), "x'--"} {
			b := sqllock.New(openDSN(t, dsnOf(s, "", "")), sqllock.MySQL, &sqllock.Options{Prefix: prefix, CreateTables: true})
			refusal(t, b, "prefix")
			b.Close()
		}
	})
	t.Run("NoDatabaseChosen", func(t *testing.T) {
		b := sqllock.New(openDSN(t, dsnOf(s, "", "")), sqllock.MySQL, create)
		defer b.Close()
		refusal(t, b, "no database is chosen")
	})
	t.Run("NoSuchDatabase", func(t *testing.T) {
		b := sqllock.New(openDSN(t, dsnOf(s, "nowhere", "")), sqllock.MySQL, create)
		defer b.Close()
		refusal(t, b, "no such database")
	})
	t.Run("WrongPassword", func(t *testing.T) {
		admin := openDSN(t, dsnOf(s, "", ""))
		do(t, admin, "CREATE USER ali IDENTIFIED BY 'open'")
		defer do(t, admin, "DROP USER ali")
		b := sqllock.New(openDSN(t, fmt.Sprintf("ali:sesame@tcp(%s)/mysql", s.Addr())), sqllock.MySQL, create)
		defer b.Close()
		refusal(t, b, "password")
	})
	for name, change := range map[string]string{"ExpiredPassword": "PASSWORD EXPIRE", "LockedUser": "ACCOUNT LOCK"} {
		t.Run(name, func(t *testing.T) {
			admin := openDSN(t, dsnOf(s, "", ""))
			do(t, admin, "CREATE USER ali IDENTIFIED BY 'open'")
			defer do(t, admin, "DROP USER ali")
			do(t, admin, "GRANT ALL ON *.* TO ali")
			do(t, admin, "ALTER USER ali "+change)
			b := sqllock.New(openDSN(t, fmt.Sprintf("ali:open@tcp(%s)/%s", s.Addr(), newDatabase(t))), sqllock.MySQL, create)
			defer b.Close()
			refusal(t, b, "refuses the user or the password")
		})
	}
	t.Run("MissingRight", func(t *testing.T) {
		name := newDatabase(t)
		admin := openDSN(t, dsnOf(s, name, ""))
		leave(t, backend(t, admin), hold(t, backend(t, admin), claim("k")))
		do(t, admin, "CREATE USER cassim")
		defer do(t, admin, "DROP USER cassim")
		do(t, admin, "GRANT SELECT ON "+name+".* TO cassim")
		b := sqllock.New(openDSN(t, fmt.Sprintf("cassim@tcp(%s)/%s", s.Addr(), name)), sqllock.MySQL, create)
		defer b.Close()
		refusal(t, b, "right is missing", "EXECUTE")
		// With the rights that the message names it works, but for CREATE.
		do(t, admin, "GRANT INSERT, UPDATE, DELETE, EXECUTE ON "+name+".* TO cassim")
		db := openDSN(t, fmt.Sprintf("cassim@tcp(%s)/%s", s.Addr(), name))
		leave(t, backend(t, db), hold(t, backend(t, db), claim("k")))
		refusal(t, sqllock.New(db, sqllock.MySQL, &sqllock.Options{Prefix: "mine_", CreateTables: true}), "right is missing", "CREATE ROUTINE")
	})
	t.Run("OtherFormat", func(t *testing.T) {
		db := openDSN(t, newDSN(t, ""))
		leave(t, backend(t, db), hold(t, backend(t, db), claim("k")))
		do(t, db, "UPDATE fencelock_meta SET value = '7' WHERE name = 'format'")
		refusal(t, backend(t, db), `format "7"`, "format 1")
		do(t, db, "DELETE FROM fencelock_meta")
		refusal(t, backend(t, db), "format")
	})
	t.Run("ClosedDatabase", func(t *testing.T) {
		db := openDSN(t, newDSN(t, ""))
		b := backend(t, db)
		leave(t, b, hold(t, b, claim("k")))
		db.Close()
		refusal(t, b, "closed")
	})
}

// TestWhatMayPassIsNotPermanent has the server refuse for reasons that go away.
func TestWhatMayPassIsNotPermanent(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t)
	root := openDSN(t, dsnOf(s, "locks", ""))
	leave(t, backend(t, root), hold(t, backend(t, root), claim("k")))
	do(t, root, "CREATE USER ali")
	do(t, root, "GRANT ALL ON locks.* TO ali")
	b := backend(t, openDSN(t, fmt.Sprintf("ali@tcp(%s)/locks", s.Addr())))
	passes := func(what, words string) {
		t.Helper()
		_, err := b.Enter(soon(t), claim("k"))
		var permanent *driver.PermanentError
		if err == nil || errors.As(err, &permanent) || !strings.Contains(err.Error(), words) {
			t.Errorf("Enter on a server %s answered %v; want an error that may pass", what, err)
		}
	}
	leave(t, b, hold(t, b, claim("k")))
	do(t, root, "SET GLOBAL read_only = 1")
	passes("that is read-only", "1290")
	do(t, root, "SET GLOBAL read_only = 0")
	leave(t, b, hold(t, b, claim("k")))

	do(t, root, "SET GLOBAL max_connections = 10")
	var all []interface{ Close() error }
	for range 10 {
		conn, err := root.Conn(soon(t))
		if err != nil {
			break
		}
		all = append(all, conn)
	}
	// The connection that b has is one of the ten; a new pool gets none.
	b = backend(t, openDSN(t, fmt.Sprintf("ali@tcp(%s)/locks", s.Addr())))
	passes("with too many connections", "1040")
	for _, conn := range all {
		conn.Close()
	}
	do(t, root, "SET GLOBAL max_connections = 500")
	do(t, root, "ALTER USER ali WITH MAX_USER_CONNECTIONS 1")
	third := backend(t, openDSN(t, fmt.Sprintf("ali@tcp(%s)/locks", s.Addr())))
	leave(t, third, hold(t, third, claim("k")))
	passes("that lets this user connect once", "1226")
	do(t, root, "ALTER USER ali WITH MAX_USER_CONNECTIONS 0")
	leave(t, b, hold(t, b, claim("k")))
	empty(t, b)
}

func TestMissingTablesAreNotRemembered(t *testing.T) {
	t.Parallel()
	db := openDSN(t, newDSN(t, ""))
	b := sqllock.New(db, sqllock.MySQL, &sqllock.Options{Prefix: "app_"})
	defer b.Close()
	refusal(t, b, "missing")
	creator := sqllock.New(db, sqllock.MySQL, &sqllock.Options{Prefix: "app_", CreateTables: true})
	defer creator.Close()
	leave(t, creator, hold(t, creator, claim("k")))
	mine := hold(t, b, claim("k"))
	// Another set of tables in the same database is another set of locks.
	other := backend(t, db)
	leave(t, other, hold(t, other, claim("k")))
	leave(t, b, mine)
	empty(t, b)
}
