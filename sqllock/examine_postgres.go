package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver/health"
)

// examineFor is how long a notification or a pooler may take.
const examineFor = 3 * time.Second

func examinePostgres(ctx context.Context, e *examination) error {
	e.ServerTime = true
	err := e.settings(ctx, "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', "+
		"'synchronous_standby_names', 'default_transaction_isolation', 'default_transaction_read_only', "+
		"'idle_in_transaction_session_timeout', 'statement_timeout')")
	if err != nil {
		return err
	}
	var standby bool
	var host sql.NullString
	var standbys int
	err = e.db.QueryRowContext(ctx, "SELECT pg_is_in_recovery(), host(inet_server_addr()), (SELECT count(*) FROM "+
		"pg_stat_replication), quote_ident(session_user)").Scan(&standby, &host, &standbys, &e.role)
	if err != nil {
		return err
	}
	if host.Valid {
		e.Hosts = []string{host.String}
	}
	splits, err := e.postgresSplits(ctx)
	if err != nil {
		return err
	}
	e.postgresRole(standby && !splits)
	if err := e.postgresTables(ctx); err != nil {
		return err
	}
	if err := e.postgresSubscribes(ctx); err != nil {
		return err
	}
	e.postgresDurability(standbys)
	e.postgresTimes()
	e.postgresPooler(ctx)
	if !standby { // where nobody can notify
		e.postgresListen(ctx)
	}
	return ctx.Err()
}

func (e *examination) postgresRole(standby bool) {
	switch {
	case standby:
		e.addValue(health.Error, "postgres-standby", "pg_is_in_recovery()", "true",
			"A standby takes no writes, so no lock can be taken here.",
			"name all servers in the URL, as in postgres://user@host1,host2/db: the one that takes writes is used")
	case e.read["default_transaction_read_only"] == "on":
		e.add(health.Error, "postgres-read-only", "default_transaction_read_only",
			"Each step of a lock writes, and is refused.",
			"SET default_transaction_read_only = off, then "+e.alterRole("default_transaction_read_only = off"))
	}
	if isolation := e.read["default_transaction_isolation"]; isolation != "read committed" {
		e.add(health.Note, "postgres-isolation", "default_transaction_isolation",
			"Locks are correct with it. Steps on one line that meet are rolled back and tried again, which read "+
				"committed spares.",
			e.alterRole("default_transaction_isolation = 'read committed'"))
	}
}

// postgresSplits finds out whether standbys answer reads, while steps go to the primary.
func (e *examination) postgresSplits(ctx context.Context) (splits bool, err error) {
	var from string
	for range 8 { // a pooler chooses a server for each connection
		// No function in it is volatile: pg_is_in_recovery is, and Pgpool would ask the primary.
		err := e.onNew(ctx, false, "SELECT CASE WHEN current_setting('transaction_read_only') = 'on' AND "+
			"current_setting('default_transaction_read_only') = 'off' THEN coalesce(host(inet_server_addr()) || ':' "+
			"|| inet_server_port(), 'a local server') ELSE '' END", &from)
		if err != nil {
			return false, err
		}
		if from != "" {
			break
		}
	}
	// A pooler that splits reads sends a transaction, or a volatile function, to the primary.
	var drawn string
	if from == "" || e.onNew(ctx, true, "SELECT txid_current()::text WHERE NOT pg_is_in_recovery()", &drawn) != nil {
		return false, ctx.Err()
	}
	e.addValue(health.Warning, "postgres-read-splitting", "reads", "answered by the standby "+from,
		"A pooler or a proxy sends some statements or connections to a standby, and others to the primary. A standby "+
			"that lags behind does not show the latest grants. Locks are correct, but a waiter asks by steps that "+
			"write, and ls, show and watch may be late or fail.",
		"connect to the primary, or past the pooler; or turn its splitting of reads off: load_balance_mode = off in "+
			"pgpool.conf, query_parser_read_write_splitting = false in pgcat.toml")
	return true, nil
}

// onNew asks over a connection that is closed afterwards, in a transaction or not.
func (e *examination) onNew(ctx context.Context, inTx bool, query string, to *string) error {
	conn, err := e.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	if !inTx {
		return conn.QueryRowContext(ctx, query).Scan(to)
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	return tx.QueryRowContext(ctx, query).Scan(to)
}

// postgresTables looks for a second set of tables.
func (e *examination) postgresTables(ctx context.Context) error {
	rows, err := e.db.QueryContext(ctx, (&postgres{e.config}).schemas())
	if err != nil {
		return err
	}
	defer rows.Close()
	var found tableSets
	for rows.Next() {
		var note, what, tables, way string
		if err := rows.Scan(&note, &what, &tables, &way); err != nil {
			return err
		}
		found.add(what == "here", note, tables, way)
	}
	err = rows.Err()
	if err == nil && found.split() {
		e.addValue(health.Error, "postgres-schemas", "schemas with tables of locks",
			strings.Join(found.all, ", "), found.why(), found.remedy())
	}
	return err
}

// postgresSubscribes looks whether another server writes to the tables of locks, by logical replication.
func (e *examination) postgresSubscribes(ctx context.Context) error {
	var names sql.NullString
	err := e.db.QueryRowContext(ctx, "SELECT string_agg(DISTINCT s.subname, ', ') FROM pg_subscription_rel AS r JOIN "+
		"pg_subscription AS s ON s.oid = r.srsubid WHERE r.srrelid = to_regclass($1)",
		e.names.sql(defaultPrefix+"swap")).Scan(&names)
	if err != nil || !names.Valid {
		return err
	}
	e.addValue(health.Warning, "postgres-subscriber", "subscriptions of the tables of locks", names.String,
		"Another server writes to these tables by logical replication, and this one takes writes too. Locks on it and "+
			"locks on the publisher do not exclude each other: a client of each may hold one lock.",
		"connect to the publisher, and leave the tables of fencelock out of the publication")
	return nil
}

func (e *examination) postgresDurability(standbys int) {
	e.Volatile = e.read["fsync"] == "off" || e.read["synchronous_commit"] == "off"
	if e.read["fsync"] == "off" {
		e.add(health.Error, "postgres-fsync", "fsync",
			"A power failure may destroy the database, and forgets locks that are held.",
			"ALTER SYSTEM SET fsync = on, then SELECT pg_reload_conf()")
	}
	if e.read["synchronous_commit"] == "off" {
		e.add(health.Warning, "postgres-synchronous-commit", "synchronous_commit",
			"A crash of the server forgets the locks of the last half second or so, and lets second holders in.",
			e.alterRole("synchronous_commit = on"))
	}
	if standbys > 0 && e.read["synchronous_standby_names"] == "" {
		e.addValue(health.Warning, "postgres-async-standby", "synchronous_standby_names", "empty",
			"A standby that is promoted may not have the last grants, and lets second holders in.",
			"ALTER SYSTEM SET synchronous_standby_names = '*', then SELECT pg_reload_conf()")
	}
}

func (e *examination) postgresTimes() {
	if e.read["idle_in_transaction_session_timeout"] == "0" {
		e.add(health.Note, "postgres-idle-in-transaction", "idle_in_transaction_session_timeout",
			"A transaction that a program forgets to end keeps old versions of rows, and busy locks become slow.",
			"ALTER SYSTEM SET idle_in_transaction_session_timeout = '10min', then SELECT pg_reload_conf()")
	}
	ms, err := strconv.Atoi(e.read["statement_timeout"])
	limit := time.Duration(ms) * time.Millisecond
	if err == nil && limit > 0 && limit < e.ttl/10 {
		e.addValue(health.Warning, "postgres-statement-timeout", "statement_timeout", limit.String(),
			"A renewal that waits for a busy disk or a busy line is ended after less than a tenth of the lease of "+
				e.ttl.String()+". The lease may end before one comes through.",
			e.alterRole("statement_timeout = '"+strconv.Itoa(int(e.ttl/10/time.Second)+1)+"s'"))
	}
}

// alterRole is a statement that changes a setting for the role of this session, from its next
// connection on.
func (e *examination) alterRole(setting string) string {
	return "ALTER ROLE " + e.role + " SET " + setting
}

// postgresPooler finds out whether a pooler lends its connections for a transaction each: a
// connection of the program then has the process that another one has just had.
func (e *examination) postgresPooler(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, examineFor)
	defer cancel()
	mode, err := e.poolMode(ctx)
	const setting = "the mode of a pooler"
	switch {
	case err != nil:
		e.addValue(health.Note, "postgres-pooler", setting, health.OneLine(err.Error()),
			"It could not be found out. It takes two connections of the *sql.DB at the same time.",
			"let the *sql.DB have two connections or more")
	case mode == "statement":
		e.addValue(health.Warning, "postgres-pooler", setting, mode,
			"Locks work, but no transaction does, so tokens cannot be checked in the transaction that they guard.",
			"pool_mode = transaction in pgbouncer.ini")
	case mode == "transaction":
		e.addValue(health.Note, "postgres-pooler", setting, mode,
			"Locks work. LISTEN needs a connection past the pooler, and PgBouncer before 1.21 mixes up prepared "+
				"statements.",
			"name PostgreSQL itself in the URL; or keep the pooler, and in a program put default_query_exec_mode=exec "+
				"into the DSN of pgx, and have Options.Listen connect past the pooler")
	}
}

// poolMode returns transaction, statement, or "" for a pooler in session mode and for none.
func (e *examination) poolMode(ctx context.Context) (mode string, err error) {
	if e.db.Stats().MaxOpenConnections == 1 {
		return "", errors.New("the *sql.DB may have one connection only")
	}
	first, err := e.db.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer first.Close()
	for range 3 { // others who use the pooler may be in between
		if mode, err = e.poolModeOnce(ctx, first); mode != "" || err != nil {
			break
		}
	}
	return mode, err
}

func (e *examination) poolModeOnce(ctx context.Context, first *sql.Conn) (string, error) {
	before, err := processOf(ctx, first)
	if err != nil {
		return "", err
	}
	tx, err := e.db.BeginTx(ctx, nil)
	if err != nil && strings.Contains(err.Error(), "statement pooling") {
		return "statement", nil
	}
	if err != nil {
		return "", err
	}
	defer tx.Rollback()
	other, err := processOf(ctx, tx)
	if err != nil {
		return "", err
	}
	after, err := processOf(ctx, first)
	if err == nil && (other == before || after != before) {
		return "transaction", nil
	}
	return "", err
}

// processOf returns the server's process that serves a connection.
func processOf(ctx context.Context, conn interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (pid int, err error) {
	err = conn.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid)
	return pid, err
}

// postgresListen sends a notification, and waits for it.
func (e *examination) postgresListen(ctx context.Context) {
	if e.listen == nil {
		e.addValue(health.Note, "postgres-listen", "Options.Listen", "not set",
			"Waiters poll the database, which prolongs a wait by about an eighth.",
			"set Options.Listen")
		return
	}
	if e.notified(ctx) {
		return
	}
	e.addValue(health.Warning, "postgres-listen", "LISTEN", "no notification within "+examineFor.String(),
		"Waiters are not woken and poll the database, which prolongs a wait by about an eighth. Nothing is heard "+
			"through a pooler.",
		"name PostgreSQL itself in the URL; or in a program have Options.Listen connect past the pooler")
}

// notified reports whether a notification arrives.
func (e *examination) notified(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, examineFor)
	channel := strings.ToLower(e.names.prefix) + "doctor_" + strconv.FormatUint(rand.Uint64(), 10)
	heard, ended := make(chan struct{}, 16), make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.listen(ctx, channel, func() { // that it failed is the finding
			select {
			case heard <- struct{}{}:
			default:
			}
		})
		cancel()
	}()
	defer func() {
		cancel()
		<-ended
	}()
	for sent := false; ; {
		select {
		case <-heard:
			if sent {
				return true
			}
		case <-ctx.Done():
			return false
		}
		if _, err := e.db.ExecContext(ctx, "NOTIFY "+channel); err != nil {
			return false
		}
		sent = true
	}
}
