package storeurl

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencelock/fencelock/sqllock"
)

// checkPostgres reads postgres://user@host:port/db with the parameters of libpq.
func checkPostgres(u *URL, rest *url.URL) error {
	if err := u.foreign(foreignPostgres); err != nil {
		return err
	}
	if err := u.postgresHosts(rest); err != nil {
		return err
	}
	if err := u.database(rest); err != nil {
		return err
	}
	if u.settings["sslmode"] == "no-verify" { // of node-postgres
		u.settings["sslmode"] = "require"
	}
	if name := choosesSchema(u.settings); name != "" {
		return fmt.Errorf("the %s URL sets %s, so its locks would be in another schema than those of other programs; "+
			"set it on the server for everybody: ALTER ROLE … SET search_path", u.Scheme, name)
	}
	return u.onlySettings(slices.Concat(postgresSettings, postgresIgnored)...)
}

// postgresSettings are the parameters that pgx or the server understands.
var postgresSettings = []string{
	"application_name", "channel_binding", "client_encoding", "connect_timeout", "default_query_exec_mode",
	"description_cache_capacity", "idle_in_transaction_session_timeout", "krbspn", "krbsrvname", "lock_timeout",
	"max_protocol_version", "min_protocol_version", "options", "passfile", "password", "require_auth", "service",
	"servicefile", "sslcert", "sslcertmode", "sslkey", "sslmode", "sslnegotiation", "sslpassword", "sslrootcert",
	"sslsni", "statement_cache_capacity", "statement_timeout", "target_session_attrs", "user",
}

// postgresIgnored are parameters of libpq without a counterpart in pgx. A connection is as
// safe and as right without them.
var postgresIgnored = []string{
	"fallback_application_name", "gssdelegation", "gssencmode", "gsslib", "keepalives", "keepalives_count",
	"keepalives_idle", "keepalives_interval", "load_balance_hosts", "sslcompression", "tcp_user_timeout",
}

func openPostgres(_ context.Context, u *URL, c *Config) (*Store, error) {
	config, err := u.postgresConfig(c)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(newConnector(stdlib.GetConnector(*config)))
	o := &sqllock.Options{CreateTables: true}
	if c.maxConns() > 1 {
		o.Listen = Listen(config, db)
	}
	s := onSQL(db, sqllock.Postgres, o, c)
	read := s.ping
	s.ping = func(ctx context.Context) error {
		err := read(ctx)
		var refused *pgconn.PgError
		switch {
		case !errors.As(err, &refused):
		case refused.Code == "28P01":
			return &DeniedError{Given: config.Password != ""}
		case refused.Code == "28000": // a role that may not log in, or a line that pg_hba.conf lacks
			return &DeniedError{Given: config.Password != "", says: refused.Message}
		}
		return err
	}
	return s, nil
}

// postgresText returns the settings of u as a keyword/value connection string of libpq.
func (u *URL) postgresText() string {
	hosts, ports := u.hostsAndPorts()
	settings := map[string]string{"user": u.user}
	if !u.tls.empty() {
		settings["sslrootcert"], settings["sslcert"], settings["sslkey"] = u.tls.CA, u.tls.Cert, u.tls.Key
		settings["sslmode"] = "verify-full"
	}
	for name, value := range u.settings {
		if !slices.Contains(postgresIgnored, name) {
			settings[name] = value
		}
	}
	settings["host"], settings["port"] = strings.Join(hosts, ","), strings.Join(ports, ",")
	settings["dbname"] = u.Path
	if len(hosts) > 1 && settings["target_session_attrs"] == "" && os.Getenv("PGTARGETSESSIONATTRS") == "" {
		settings["target_session_attrs"] = "read-write" // a standby takes no locks
	}
	var text strings.Builder
	for name, value := range settings {
		if value != "" {
			fmt.Fprintf(&text, "%s='%s' ", name, strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value))
		}
	}
	return text.String()
}

// postgresConfig leaves to the environment what psql takes from there and a URL here does
// not say: PGSSLMODE and its kin, ~/.pgpass, and the user.
func (u *URL) postgresConfig(c *Config) (*pgx.ConnConfig, error) {
	o, err := pgx.ParseConfig(u.postgresText())
	if err != nil {
		return nil, badConfig("the settings for %s cannot be used: %v", u, err)
	}
	if name := choosesSchema(o.RuntimeParams); name != "" {
		return nil, badConfig("PGOPTIONS or PGSERVICE sets %s, so the locks would be in another schema than those of "+
			"others on %s; unset it for fencelock, or set it on the server for everybody: "+
			"ALTER ROLE … SET search_path", name, u)
	}
	if u.password != "" {
		o.Password = u.password
	}
	if !c.Prepare && u.settings["default_query_exec_mode"] == "" {
		// One round trip from the first statement on, also through a pooler.
		o.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if c.Dial != nil {
		o.DialFunc = c.Dial
	}
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

const (
	// listenPatience is how long a notification may take.
	listenPatience = 5 * time.Second
	// listenEach is after how long without a notification one is sent, to see whether it arrives.
	listenEach = 30 * time.Second
)

// Listen is an Options.Listen of package sqllock. It waits for notifications on a
// connection of its own. With db it notifies itself, first and in every quiet half minute: none arrives from a server
// that is not the primary any more. Listen fails then, and behind a pooler, and sqllock asks for news itself meanwhile.
func Listen(config *pgx.ConnConfig, db *sql.DB) func(context.Context, string, func()) error {
	return func(ctx context.Context, channel string, heard func()) error {
		conn, err := pgx.ConnectConfig(ctx, config.Copy())
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if err := unpooled(ctx, conn); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
			return err
		}
		for quiet := time.Duration(0); ; quiet = listenEach {
			if err := waitUntilQuiet(ctx, conn, quiet, heard); err != nil {
				return err
			}
			if db != nil {
				if err := hearSelf(ctx, conn, db, channel); err != nil {
					return err
				}
			}
			heard()
		}
	}
}

var errPooler = errors.New("the server is behind a pooler")

// unpooled returns errPooler if conn leads to a pooler, such as PgBouncer, which has a number of its own for it. In
// transaction mode a LISTEN would stay in a session that others use next: PgBouncer logs each notification that comes
// when nobody uses it, and PgBouncer 1.18 may end at one.
func unpooled(ctx context.Context, conn *pgx.Conn) error {
	var pid uint32
	err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	if err == nil && pid != conn.PgConn().PID() {
		err = errPooler
	}
	return err
}

// waitUntilQuiet passes notifications on until there was none for that long.
func waitUntilQuiet(ctx context.Context, conn *pgx.Conn, quiet time.Duration, heard func()) error {
	for quiet > 0 {
		soon, cancel := context.WithTimeout(ctx, quiet)
		_, err := conn.WaitForNotification(soon)
		over := soon.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			heard()
		case over && !conn.IsClosed():
			return nil
		default:
			return err
		}
	}
	return nil
}

// hearSelf sends a notification over a connection of the pool, and waits until one arrives. A
// connection on which it cannot be sent is not used again: it may lead to a server that takes no
// writes.
func hearSelf(ctx context.Context, listener *pgx.Conn, db *sql.DB, channel string) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "NOTIFY "+channel)
	if err != nil {
		_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn }) // closes it
	}
	conn.Close()
	if err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, listenPatience)
	defer cancel()
	_, err = listener.WaitForNotification(soon)
	return err
}
