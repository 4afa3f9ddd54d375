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

func examinePostgres(ctx context.Context, e *examination) (err error) {
	e.ServerTime = true
	e.read, err = settings(ctx, e.db, "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', "+
		"'synchronous_commit', 'synchronous_standby_names', 'default_transaction_isolation', "+
		"'default_transaction_read_only', 'idle_in_transaction_session_timeout', 'statement_timeout')")
	if err != nil {
		return err
	}
	var standby bool
	var host, publishers sql.NullString
	var standbys int
	err = e.db.QueryRowContext(ctx, "SELECT pg_is_in_recovery(), host(inet_server_addr()), (SELECT count(*) FROM "+
		"pg_stat_replication), quote_ident(session_user), (SELECT string_agg(DISTINCT s.subname, ', ') FROM "+
		"pg_subscription_rel AS r JOIN pg_subscription AS s ON s.oid = r.srsubid WHERE r.srrelid = to_regclass($1))",
		e.prefix+"swap").Scan(&standby, &host, &standbys, &e.role, &publishers)
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
	if err := e.postgresTables(ctx, publishers.String); err != nil {
		return err
	}
	e.postgresSettings(standby && !splits, standbys)
	e.postgresPooler(ctx)
	if !standby { // where nobody can notify
		e.postgresListen(ctx)
	}
	return ctx.Err()
}

// postgresSplits finds out whether standbys answer reads, while steps go to the primary.
func (e *examination) postgresSplits(ctx context.Context) (splits bool, err error) {
	// No function in it is volatile: pg_is_in_recovery is, and Pgpool would ask the primary.
	from, err := e.readsElsewhere(ctx, "SELECT CASE WHEN current_setting('transaction_read_only') = 'on' AND "+
		"current_setting('default_transaction_read_only') = 'off' THEN coalesce(host(inet_server_addr()) || ':' "+
		"|| inet_server_port(), 'a local server') ELSE '' END", func(answer string) bool { return answer != "" })
	if err != nil {
		return false, err
	}
	// A pooler that splits reads sends a transaction, or a volatile function, to the primary.
	var drawn string
	if from == "" || e.onNew(ctx, true, "SELECT txid_current()::text WHERE NOT pg_is_in_recovery()", &drawn) != nil {
		return false, ctx.Err()
	}
	e.add(true, health.Warning, "postgres-read-splitting", "reads", "answered by the standby "+from,
		"A pooler or a proxy sends some statements or connections to a standby, and others to the primary. A standby "+
			"that lags behind does not show the latest grants. Locks are correct, but a waiter asks by steps that "+
			"write, and ls, show and watch may be late or fail.",
		"connect to the primary, or past the pooler; or turn its splitting of reads off: load_balance_mode = off in "+
			"pgpool.conf, query_parser_read_write_splitting = false in pgcat.toml")
	return true, nil
}

// postgresTables looks for a second set of tables, and for another server that writes to these, by logical
// replication.
func (e *examination) postgresTables(ctx context.Context, publishers string) error {
	sets, err := e.servers().sets(ctx)
	if err != nil {
		return err
	}
	schemas := make([]string, len(sets))
	for i, s := range sets {
		schemas[i] = s.schema
	}
	why, remedy := split(sets)
	e.add(why != "", health.Error, "postgres-schemas", "schemas with tables of locks", strings.Join(schemas, ", "),
		why, remedy)
	e.add(publishers != "", health.Warning, "postgres-subscriber", "subscriptions of the tables of locks", publishers,
		"Another server writes to these tables by logical replication, and this one takes writes too. Locks on it and "+
			"locks on the publisher do not exclude each other: a client of each may hold one lock.",
		"connect to the publisher, and leave the tables of fencelock out of the publication")
	return nil
}

func (e *examination) postgresSettings(standby bool, standbys int) {
	e.add(standby, health.Error, "postgres-standby", "pg_is_in_recovery()", "true",
		"A standby takes no writes, so no lock can be taken here.",
		"name all servers in the URL, as in postgres://user@host1,host2/db: the one that takes writes is used")
	e.add(!standby && e.read["default_transaction_read_only"] == "on", health.Error, "postgres-read-only",
		"default_transaction_read_only", "",
		"Each step of a lock writes, and is refused.",
		"SET default_transaction_read_only = off, then "+e.alterRole("default_transaction_read_only = off"))
	e.add(e.read["default_transaction_isolation"] != "read committed", health.Note, "postgres-isolation",
		"default_transaction_isolation", "",
		"Locks are correct with it. Steps on one line that meet are rolled back and tried again, which read committed "+
			"spares.",
		e.alterRole("default_transaction_isolation = 'read committed'"))
	e.Volatile = e.read["fsync"] == "off" || e.read["synchronous_commit"] == "off"
	e.add(e.read["fsync"] == "off", health.Error, "postgres-fsync", "fsync", "",
		"A power failure may destroy the database, and forgets locks that are held.",
		"ALTER SYSTEM SET fsync = on, then SELECT pg_reload_conf()")
	e.add(e.read["synchronous_commit"] == "off", health.Warning,
		"postgres-synchronous-commit", "synchronous_commit", "",
		"A crash of the server forgets the locks of the last half second or so, and lets second holders in.",
		e.alterRole("synchronous_commit = on"))
	e.add(standbys > 0 && e.read["synchronous_standby_names"] == "", health.Warning, "postgres-async-standby",
		"synchronous_standby_names", "empty",
		"A standby that is promoted may not have the last grants, and lets second holders in.",
		"ALTER SYSTEM SET synchronous_standby_names = '*', then SELECT pg_reload_conf()")
	e.add(e.read["idle_in_transaction_session_timeout"] == "0", health.Note, "postgres-idle-in-transaction",
		"idle_in_transaction_session_timeout", "",
		"A transaction that a program forgets to end keeps old versions of rows, and busy locks become slow.",
		"ALTER SYSTEM SET idle_in_transaction_session_timeout = '10min', then SELECT pg_reload_conf()")
	ms, err := strconv.Atoi(e.read["statement_timeout"])
	limit := time.Duration(ms) * time.Millisecond
	e.add(err == nil && limit > 0 && limit < e.ttl/10, health.Warning, "postgres-statement-timeout",
		"statement_timeout",
		limit.String(),
		"A renewal that waits for a busy disk or a busy line is ended after less than a tenth of the lease of "+
			e.ttl.String()+". The lease may end before one comes through.",
		e.alterRole("statement_timeout = '"+strconv.Itoa(int(e.ttl/10/time.Second)+1)+"s'"))
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
	if err != nil {
		e.add(true, health.Note, "postgres-pooler", setting, health.OneLine(err.Error()),
			"It could not be found out. It takes two connections of the *sql.DB at the same time.",
			"let the *sql.DB have two connections or more")
		return
	}
	e.add(mode == "statement", health.Warning, "postgres-pooler", setting, mode,
		"Locks work, but no transaction does, so tokens cannot be checked in the transaction that they guard.",
		"pool_mode = transaction in pgbouncer.ini")
	e.add(mode == "transaction", health.Note, "postgres-pooler", setting, mode,
		"Locks work. LISTEN needs a connection past the pooler, and PgBouncer before 1.21 mixes up prepared "+
			"statements.",
		"name PostgreSQL itself in the URL; or keep the pooler, and in a program put default_query_exec_mode=exec "+
			"into the DSN of pgx, and have Options.Listen connect past the pooler")
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
	const process = "SELECT pg_backend_pid()"
	var before, other, after int
	if err := first.QueryRowContext(ctx, process).Scan(&before); err != nil {
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
	if err := tx.QueryRowContext(ctx, process).Scan(&other); err != nil {
		return "", err
	}
	err = first.QueryRowContext(ctx, process).Scan(&after)
	if err == nil && (other == before || after != before) {
		return "transaction", nil
	}
	return "", err
}

// postgresListen sends a notification, and waits for it.
func (e *examination) postgresListen(ctx context.Context) {
	e.add(e.listen == nil, health.Note, "postgres-listen", "Options.Listen", "not set",
		"Waiters poll the database, which prolongs a wait by about an eighth.",
		"set Options.Listen")
	e.add(e.listen != nil && !e.notified(ctx), health.Warning, "postgres-listen", "LISTEN",
		"no notification within "+examineFor.String(),
		"Waiters are not woken and poll the database, which prolongs a wait by about an eighth. Nothing is heard "+
			"through a pooler.",
		"name PostgreSQL itself in the URL; or in a program have Options.Listen connect past the pooler")
}

// notified reports whether a notification arrives.
func (e *examination) notified(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, examineFor)
	channel := strings.ToLower(e.prefix) + "doctor_" + strconv.FormatUint(rand.Uint64(), 10)
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
	for sent := false; ; sent = true {
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
	}
}
