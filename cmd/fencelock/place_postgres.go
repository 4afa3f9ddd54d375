package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// checkPostgres reads postgres://user@host:port/db. Complaints do not repeat what they
// are about: part of a password with a slash in it looks like a database.
func checkPostgres(p *place) error {
	host, port := p.url.Hostname(), p.url.Port()
	if host == "" || p.url.Opaque != "" {
		return usage("the %s URL has no host; write %s", p.scheme.name, p.scheme.form)
	}
	if port == "" {
		port = "5432"
	}
	db := strings.TrimPrefix(p.url.Path, "/")
	if db == "" || strings.Contains(db, "/") {
		return usage("what follows the host of the %s URL is not the name of a database; write %s, and percent-encode special characters of a password", p.scheme.name, p.scheme.form)
	}
	p.url.Host, p.url.Path = net.JoinHostPort(host, port), db
	p.text = p.scheme.name + " " + p.url.Host + "/" + db
	return nil
}

func openPostgres(ctx context.Context, p *place) (*store, error) {
	m, err := openPostgresAs(p, nil)
	if err != nil {
		return nil, err
	}
	end := func() { _ = m.backend.Close(); m.close() }
	if err := m.ask(ctx); err != nil {
		end()
		return nil, err
	}
	return &store{m.backend, end}, nil
}

// postgresMember opens a database as one of a quorum.
func postgresMember(p *place) (*member, error) { return openPostgresAs(p, &driver.Membership{}) }

func openPostgresAs(p *place, of *driver.Membership) (*member, error) {
	o, err := postgresConfig(p)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*o)
	// One process holds one lock: what it sends at once is little.
	db.SetMaxOpenConns(2)
	b := sqllock.New(db, sqllock.Postgres, &sqllock.Options{CreateTables: true, Listen: postgresListen(o, db), Member: of})
	ask := func(ctx context.Context) error {
		_, err := b.Line(ctx, "\x00")
		var refused *pgconn.PgError
		if errors.As(err, &refused) && (refused.Code == "28P01" || refused.Code == "28000") {
			return deniedError{given: o.Password != ""}
		}
		return err
	}
	return &member{b, ask, func() { _ = db.Close() }}, nil
}

// postgresConfig leaves to the environment what psql takes from there and a URL here does
// not say: PGSSLMODE and its kin, ~/.pgpass, and the user.
func postgresConfig(p *place) (*pgx.ConnConfig, error) {
	var text strings.Builder
	for _, setting := range []struct{ name, value string }{
		{"host", p.url.Hostname()}, {"port", p.url.Port()}, {"dbname", p.url.Path}, {"user", p.secret.user},
	} {
		if setting.value != "" {
			fmt.Fprintf(&text, "%s='%s' ", setting.name, strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(setting.value))
		}
	}
	o, err := pgx.ParseConfig(text.String())
	if err != nil {
		return nil, fail(exitConfig, "the settings for %s cannot be used: %v", p, err)
	}
	if name := choosesSchema(o.RuntimeParams); name != "" {
		return nil, fail(exitConfig, "PGOPTIONS or PGSERVICE sets %s, so the locks would be in another schema than those of others on %s; "+
			"unset it for fencelock, or set it on the server for everybody: ALTER ROLE … SET search_path", name, p)
	}
	if p.secret.password != "" {
		o.Password = p.secret.password
	}
	// One round trip from the first statement on, also through a pooler.
	o.DefaultQueryExecMode = pgx.QueryExecModeExec
	if o.RuntimeParams["application_name"] == "" {
		o.RuntimeParams["application_name"] = "fencelock"
	}
	return o, nil
}

// choosesSchema names the setting of a connection that decides in which schema its tables
// are, or "". Two processes that differ in it would hold one lock in two schemas.
func choosesSchema(settings map[string]string) string {
	var names []string
	for name := range settings {
		names = append(names, name)
	}
	// -c name=value, -cname=value, --name=value; a backslash escapes the next character.
	for _, word := range strings.Fields(strings.ReplaceAll(settings["options"], `\`, "")) {
		name, _, _ := strings.Cut(word, "=")
		names = append(names, strings.TrimPrefix(strings.TrimPrefix(name, "--"), "-c"))
	}
	for _, name := range names {
		switch name = strings.ToLower(strings.ReplaceAll(name, "-", "_")); name {
		case "search_path", "role", "session_authorization":
			return name
		}
	}
	return ""
}

// postgresListen waits for notifications on a connection of its own. It first notifies
// itself: through a pooler in transaction mode nothing gets back, and then it is better to
// say so, for the store asks for news then.
func postgresListen(o *pgx.ConnConfig, db *sql.DB) func(context.Context, string, func()) error {
	const patience = 5 * time.Second
	return func(ctx context.Context, channel string, heard func()) error {
		conn, err := pgx.ConnectConfig(ctx, o.Copy())
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
			return err
		}
		if _, err := db.ExecContext(ctx, "NOTIFY "+channel); err != nil {
			return err
		}
		soon, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if _, err := conn.WaitForNotification(soon); err != nil {
			return err
		}
		for {
			heard()
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return err
			}
		}
	}
}
