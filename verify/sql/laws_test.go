package sql_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/sqllock"
)

// laws holds a database to the laws of package driver, all of them if there are no options.
func laws(t *testing.T, open drivertest.Opener, opts ...drivertest.Option) {
	t.Run("Run", func(t *testing.T) { drivertest.Run(t, open, opts...) })
	t.Run("Model", func(t *testing.T) { drivertest.Model(t, open) })
}

// TestLaws gives each view a pool of its own, as two processes have.
func TestLaws(t *testing.T) {
	each(t, append(rarely(pgBouncer), all...), func(t *testing.T, s *store) {
		laws(t, func(t *testing.T) driver.Backend { return s.backend(t) })
	})
}

// awkward are settings that roles, databases and programs have for reasons of their own.
// Of each kind of server, make test takes a few.
var awkward = append(rarely(
	repeatableRead,
	postgres.with("CacheDescribe", "default_query_exec_mode=cache_describe"),
	postgres.with("DescribeExec", "default_query_exec_mode=describe_exec", "timezone=Asia/Kathmandu",
		"datestyle=German, DMY"),
	postgres.with("SimpleProtocol", "default_query_exec_mode=simple_protocol", "extra_float_digits=0"),
	postgres.with("EscapedBytes", "bytea_output=escape", "standard_conforming_strings=off",
		"intervalstyle=sql_standard"),
	postgres.with("EscapedText", "bytea_output=escape", "default_query_exec_mode=exec"),
	postgres.with("OtherPlans", "enable_indexscan=off", "enable_indexonlyscan=off", "enable_nestloop=off",
		"plan_cache_mode=force_generic_plan", "jit=off"), // a plan that is off seems to cost enough to be compiled
	postgres.with("ImpatientRole", "lock_timeout=50", "synchronous_commit=off", "statement_timeout=20s",
		"idle_in_transaction_session_timeout=1s"),
	postgres.with("OtherSchema", "search_path=app, public"),
	postgres.with("Latin1"),
	mariaDB.with("ClientFoundRows", "clientFoundRows=true"),
	mariaDB.with("InterpolateParams", "interpolateParams=true", "parseTime=true", "loc=Asia%2FShanghai",
		"multiStatements=true"),
	mariaDB.with("TimeZone", "time_zone=%27%2B05%3A30%27"),
	mariaDB.with("ForgedNow", "timestamp=1000000000"),
	mariaDB.with("NoAutocommit", "autocommit=0"),
	mariaDB.with("ReadOnlySession", "tx_read_only=1"),
	mariaDB.with("SafeUpdates", "sql_safe_updates=1", "sql_select_limit=1"),
	mariaDB.with("Collation", "charset=latin1", "collation=latin1_swedish_ci"),
	mariaDB.with("NoMode", "sql_mode=%27%27"),
	mariaDB.with("CompletionChain", "completion_type=%27CHAIN%27", "autocommit=0"),
),
	serializable,
	pgBouncer.with("Simple", "default_query_exec_mode=simple_protocol"),
	mariaDB.with("CompletionRelease", "completion_type=%27RELEASE%27"),
	mariaDB.with("Serializable", "tx_isolation=%27SERIALIZABLE%27"),
	mariaDB.with("OracleMode", "sql_mode=%27ORACLE,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,EMPTY_STRING_IS_NULL,SIMULTANEOUS_ASSIGNMENT,"+
		"PAD_CHAR_TO_FULL_LENGTH,HIGH_NOT_PRECEDENCE,IGNORE_SPACE,REAL_AS_FLOAT,NO_UNSIGNED_SUBTRACTION,TIME_ROUND_FRACTIONAL%27"),
)

// mySQLWords are what MySQL calls settings of MariaDB.
var mySQLWords = strings.NewReplacer("tx_", "transaction_", "ORACLE,", "PIPES_AS_CONCAT,", "EMPTY_STRING_IS_NULL,", "",
	"SIMULTANEOUS_ASSIGNMENT,", "", "TIME_ROUND_FRACTIONAL", "TIME_TRUNCATE_FRACTIONAL")

// TestLawsUnderAwkwardSettings compares all answers with the model, creates the tables
// under the same settings, and sees leases end.
func TestLawsUnderAwkwardSettings(t *testing.T) {
	each(t, awkward, func(t *testing.T, s *store) {
		s.settle(t)
		drivertest.Model(t, func(t *testing.T) driver.Backend { return s.backend(t) }, 1)
		a, b := s.backend(t), s.backend(t)
		essentials(t, a, b)
	})
}

// settle makes the database that a kind of awkward asks for.
func (s *store) settle(t *testing.T) {
	t.Helper()
	switch {
	case strings.HasSuffix(s.kind.name, "/OtherSchema"):
		s.do(t, "CREATE SCHEMA app")
	case strings.HasSuffix(s.kind.name, "/Latin1"):
		admin := s.openDSN(t, s.on.URL())
		run(t, admin, "DROP DATABASE "+s.name)
		run(t, admin, "CREATE DATABASE "+s.name+" TEMPLATE template0 ENCODING 'LATIN1'")
	case s.dialect == sqllock.MySQL && onMySQL(t, s):
		s.dsn = mySQLWords.Replace(s.dsn)
	}
}

// essentials plays what settings of a session could spoil: the clock, leases that end, a
// hand-over, a mark, a tombstone, and text of all kinds, and without bytes in it.
func essentials(t *testing.T, a, b driver.Backend) {
	t.Helper()
	c, plain := ttl(claim("k\x00\\'\xff"), 2*time.Second), ttl(claim("plain"), 500*time.Millisecond)
	c.Owner, c.Note, plain.Owner, plain.Note = "☂ owner", `\x00 '; note`, "", ""
	if silent := hold(t, a, plain); silent.Owner != "" || silent.Note != "" {
		t.Errorf("the ticket says %q and %q; want no text", silent.Owner, silent.Note)
	}
	use(t, b, "other") // both have their connections and tables now
	began := time.Now()
	short := hold(t, a, c)
	// A server in the same room has the same time, in every zone.
	if at := time.UnixMicro(short.Token); at.Before(began.Add(-time.Minute)) || at.After(began.Add(time.Minute)) {
		t.Errorf("the token %d is of %v; want one of now", short.Token, at)
	}
	next := enter(t, b, claim(c.Key))
	if !next.Granted && next.Head == nil { // who arrives behind others may learn later whom
		var err error
		next, err = b.Await(soon(t), next)
		must(t, err)
	}
	// On a busy machine the lease may be over by now.
	if !next.Granted && next.Head == nil || next.Head != nil &&
		(next.Head.Owner != c.Owner || next.Head.Note != c.Note) {
		t.Errorf("the head is %+v; want owner %q and note %q", next.Head, c.Owner, c.Note)
	}
	next = granted(t, b, next)
	if took := time.Since(began); took < c.TTL {
		t.Errorf("the next in line was granted after %v; want the end of the lease of %v", took, c.TTL)
	}
	gone(t, "Renew after the lease", renew(a, soon(t), short))
	steps.Rises(t, short.Token, next.Token)
	renewed(t, b, next)
	var held *driver.BusyError
	_, err := a.Enter(soon(t), noWait(claim(c.Key)))
	if !errors.As(err, &held) || held.Token != next.Token || held.Left <= 0 || held.Left > next.TTL {
		t.Errorf("a try answered %v; want who holds it", err)
	}
	steps.OK(t, b.Leave(soon(t), next, driver.Exit{Mark: "done \x00\xff"}))
	for _, end := range []struct{ key, mark, reason string }{{c.Key, "done \x00\xff", "why ☂"}, {plain.Key, "", ""}} {
		marked := granted(t, a, enter(t, a, claim(end.key)))
		steps.Same(t, "the mark", string(marked.Mark), end.mark)
		steps.OK(t, b.Break(soon(t), end.key, marked.Token, driver.Break{Reason: end.reason}))
		var gone driver.GoneError
		if _, err := a.Enter(soon(t), marked.Claim); !errors.As(err, &gone) || !gone.Broken ||
			gone.Reason != end.reason {
			t.Errorf("Enter of a broken claim answered %v; want that", err)
		}
	}
	empty(t, b)
}
