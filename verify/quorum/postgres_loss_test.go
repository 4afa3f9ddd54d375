package quorum_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// A server that loses nothing, as Durable says of it, and can be copied.
var carefully = testserver.Config("fsync = on", "wal_level = replica", "max_wal_senders = 2", "hot_standby = on")

var durable = driver.Membership{Skew: lasting.Skew, MaxTTL: lasting.MaxTTL, Durable: true}

// quarantined asks for a lock that must not be granted yet.
func quarantined(t *testing.T, b *sqllock.Backend, key string) time.Duration {
	t.Helper()
	c := ballotOn(key)
	c.TTL = min(c.TTL, b.Info().MaxTTL)
	k, err := b.Enter(t.Context(), c)
	var q *driver.QuarantineError
	if !errors.As(err, &q) {
		t.Fatalf("a ballot on %q was answered with token %d and error %v; want a *QuarantineError", key, k.Token, err)
	}
	if q.Left <= 0 || q.Left > b.Info().MaxTTL {
		t.Errorf("a quarantine of %v is said to last %v", b.Info().MaxTTL, q.Left)
	}
	return q.Left
}

// Members that are Durable go on where a server set up so loses nothing. All others wait, for they
// cannot know, as does everybody whose data is not what was there before.
func TestPostgresMemberAfterALoss(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t, carefully)
	kinds := []driver.Membership{lasting, durable}
	urls := []string{newDatabase(t, s), newDatabase(t, s)}
	each := func(happen func(t *testing.T, s *testserver.Server, url string) (after string)) func(t *testing.T, s *testserver.Server, urls []string) []string {
		return func(t *testing.T, s *testserver.Server, urls []string) []string {
			for i := range urls {
				urls[i] = happen(t, s, urls[i])
			}
			return urls
		}
	}
	for _, loss := range []struct {
		name   string
		happen func(t *testing.T, s *testserver.Server, urls []string) (after []string)
		goesOn bool // a member that is Durable
		spares bool // any member
	}{
		{"Stopped", func(t *testing.T, s *testserver.Server, urls []string) []string {
			stopCleanly(t, s)
			check(t, s.Restart())
			return urls
		}, true, false},
		{"Killed", func(t *testing.T, s *testserver.Server, urls []string) []string {
			check(t, s.Restart())
			return urls
		}, true, false},
		{"OneProcessKilled", func(t *testing.T, s *testserver.Server, urls []string) []string {
			killSession(t, s, urls[0])
			return urls
		}, true, false},
		{"DumpPutBack", each(func(t *testing.T, s *testserver.Server, url string) string {
			for _, table := range []string{"fencelock_meta", "fencelock_run"} {
				do(t, url, "CREATE TABLE kept AS SELECT * FROM "+table, "DELETE FROM "+table, "INSERT INTO "+table+" SELECT * FROM kept", "DROP TABLE kept")
			}
			return url
		}), false, false},
		{"Copied", each(func(t *testing.T, s *testserver.Server, url string) string {
			c, err := pgx.ParseConfig(url)
			check(t, err)
			do(t, s.URL(), "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '"+c.Database+"'",
				"CREATE DATABASE "+c.Database+"copy TEMPLATE "+c.Database)
			return databaseURL(t, s, c.Database+"copy")
		}), false, false},
		{"Vacuumed", each(func(t *testing.T, s *testserver.Server, url string) string {
			do(t, url, "VACUUM FULL FREEZE fencelock_meta", "VACUUM FULL FREEZE fencelock_run", "VACUUM FREEZE fencelock_meta")
			return url
		}), true, true},
		{"PutBackAndPromoted", promoteACopy, false, false},
	} {
		t.Run(loss.name, func(t *testing.T) {
			var before []driver.Ticket
			for i, m := range kinds {
				b := postgresMember(t, urls[i], m)
				check(t, b.Initialise(t.Context()))
				before = append(before, vote(t, b, ballotOn(loss.name)))
				check(t, b.Close())
			}
			after := loss.happen(t, s, slices.Clone(urls))
			for i, m := range kinds {
				b := postgresMember(t, after[i], m)
				if !loss.spares && !(loss.goesOn && m.Durable) {
					quarantined(t, b, "other")
					check(t, b.Initialise(t.Context()))
				}
				var busy *driver.BusyError
				if _, err := b.Enter(t.Context(), ballotOn(loss.name)); !errors.As(err, &busy) || busy.Token != before[i].Token {
					t.Errorf("%s: a lock that is held was answered with %v; want it held with token %d", m, err, before[i].Token)
				}
				check(t, b.Leave(t.Context(), vote(t, b, ballotOn("other")), driver.Exit{}))
			}
		})
	}
}

// stopCleanly ends a server as an operator does.
func stopCleanly(t *testing.T, s *testserver.Server) {
	t.Helper()
	p, err := os.FindProcess(s.Pid())
	check(t, err)
	check(t, p.Signal(syscall.SIGINT))
	until(t, "the server has ended", func() error {
		if strings.HasSuffix(strings.TrimSpace(s.Log()), "database system is shut down") {
			return nil
		}
		return errors.New("it has not")
	})
	check(t, s.Kill())
}

// until tries again and again for as long as a busy machine may need.
func until(t *testing.T, what string, f func() error) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; pause(20 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s: %v", what, err)
		}
	}
}

// killSession kills the process of one session. The server ends all others, recovers from
// its log, and goes on, as the same process as before.
func killSession(t *testing.T, s *testserver.Server, url string) {
	t.Helper()
	const begun = "SELECT pg_postmaster_start_time()::text"
	victim, other := connect(t, url), connect(t, url)
	defer other.Close(context.Background())
	var before, after string
	check(t, victim.QueryRow(t.Context(), begun).Scan(&before))
	p, err := os.FindProcess(int(victim.PgConn().PID()))
	check(t, err)
	check(t, p.Kill())
	until(t, "the server has ended the other session", func() error {
		if _, err := other.Exec(t.Context(), "SELECT 1"); err != nil {
			return nil
		}
		return errors.New("it answers")
	})
	until(t, "the server has recovered", func() error {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			return err
		}
		defer conn.Close(context.Background())
		return conn.QueryRow(t.Context(), begun).Scan(&after)
	})
	if after != before {
		t.Fatalf("the server was started at %s, and before at %s: this is no test of a process that dies", after, before)
	}
}

// promoteACopy lets a standby take over. What the server was told after a point in time is
// not there; here it was told nothing, but nobody can know.
func promoteACopy(t *testing.T, s *testserver.Server, urls []string) []string {
	t.Helper()
	stopCleanly(t, s)
	dir := t.TempDir()
	check(t, os.CopyFS(filepath.Join(dir, "data"), os.DirFS(filepath.Join(s.Dir(), "data"))))
	check(t, os.Chmod(filepath.Join(dir, "data"), 0o700))
	check(t, os.WriteFile(filepath.Join(dir, "data", "standby.signal"), nil, 0o600))
	standby, err := testserver.StartPostgres(t.Context(), dir, carefully)
	check(t, err)
	t.Cleanup(func() { standby.Stop() })
	do(t, standby.URL(), "SELECT pg_promote()")
	for i := range urls {
		c, err := pgx.ParseConfig(urls[i])
		check(t, err)
		urls[i] = databaseURL(t, standby, c.Database)
	}
	return urls
}

// With synchronous_commit = off a recovering server has lost its last commits, though it was never
// started again. A member that did not notice would grant the lock twice.
func TestPostgresMemberNoticesLostCommits(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t, testserver.Config("synchronous_commit = off", "wal_writer_delay = 10s", "autovacuum = off"))
	url := newDatabase(t, s)
	c := ballotOn("k")
	func() {
		b := postgresMember(t, url, lasting)
		defer b.Close()
		check(t, b.Initialise(t.Context()))
		do(t, url, "CHECKPOINT")
		vote(t, b, c)
	}()
	killSession(t, s, url)
	b := postgresMember(t, url, lasting)
	if l, err := b.Line(t.Context(), "k"); err != nil || len(l.Claims) > 0 {
		t.Fatalf("%d claims are there, %v: nothing was lost, so nothing is tested", len(l.Claims), err)
	}
	quarantined(t, b, "k")
}

// What cannot be a member as it is opened says so, and grants nothing.
func TestPostgresThatCannotBeAMemberSaysSo(t *testing.T) {
	t.Parallel()
	s := postgresServer(t)
	refuses := func(t *testing.T, b *sqllock.Backend, words ...string) {
		t.Helper()
		_, enter := b.Enter(t.Context(), ballotOn("k"))
		_, reenter := b.Reenter(t.Context(), ballotOn("k"))
		for _, err := range []error{enter, reenter, b.Initialise(t.Context())} {
			if !errors.As(err, new(*driver.PermanentError)) {
				t.Errorf("the answer is %v; want a *PermanentError", err)
				continue
			}
			for _, w := range words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the answer is %q; want it to say %q", err, w)
				}
			}
		}
	}
	refuses(t, postgresMember(t, newDatabase(t, s), durable), "Durable", "fsync")
	careful := testserver.Postgres(t, carefully)
	refuses(t, postgresMember(t, newDatabase(t, careful, "synchronous_commit", "off"), durable), "Durable", "synchronous_commit")
	// A role needs what the schema says, and no more.
	url := newDatabase(t, careful)
	if _, err := postgresMember(t, url, durable).Line(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	const tables = "fencelock_meta, fencelock_line, fencelock_claim, fencelock_tombstone"
	do(t, url, "CREATE ROLE plain LOGIN", "GRANT SELECT, INSERT, UPDATE, DELETE ON "+tables+" TO plain")
	c, err := pgx.ParseConfig(url)
	check(t, err)
	c.User = "plain"
	plain := memberOn(t, c, durable)
	refuses(t, plain, "GRANT", "right")
	do(t, url, "GRANT SELECT, INSERT, UPDATE, DELETE ON fencelock_run TO plain")
	check(t, plain.Initialise(t.Context()))
	vote(t, plain, ballotOn("k"))

	url = newDatabase(t, s)
	check(t, postgresMember(t, url, lasting).Initialise(t.Context()))
	refuses(t, postgresMember(t, url, driver.Membership{Skew: 2 * lasting.Skew}), "skew 1m0s", "driver.Membership")
	do(t, url, "UPDATE fencelock_meta SET value = 'x' || value WHERE name = 'member'")
	refuses(t, postgresMember(t, url, lasting), "damaged", "fencelock_meta", "'member'")
	do(t, url, "DELETE FROM fencelock_meta WHERE name = 'member'")
	quarantined(t, postgresMember(t, url, lasting), "k")
}

// The quarantine is remembered by the database, for processes that come later, and ends by
// the clock of the server. If that is set back meanwhile, it begins again at most.
func TestPostgresMemberWaitsOutItsQuarantine(t *testing.T) {
	t.Parallel()
	url := newDatabase(t, postgresServer(t))
	start := time.Now()
	quarantined(t, postgresMember(t, url, membership), "k")
	b := postgresMember(t, url, membership)
	do(t, url, `UPDATE fencelock_meta SET value = concat_ws(' ', '1', txid_current(), split_part(value, ' ', 3)::bigint + 3600000000,
		split_part(value, ' ', 4)) || substr(value, length(split_part(value, ' skew', 1)) + 1) WHERE name = 'member'`)
	until(t, "the quarantine is over", func() error {
		c := ballotOn("k")
		c.TTL = time.Second
		_, err := b.Enter(t.Context(), c)
		return err
	})
	if d := time.Since(start); d < membership.MaxTTL {
		t.Errorf("a new database took a ballot after %v; want none for %v", d, membership.MaxTTL)
	}
}

// A ballot finds out that the database is new while an operator says the same. Whoever
// writes it down first, the other must not undo it.
func TestPostgresQuarantineBesideInitialise(t *testing.T) {
	t.Parallel()
	for _, isolation := range isolations {
		for _, first := range []string{"Ballot", "Initialise"} {
			t.Run(first+" first, "+isolation, func(t *testing.T) {
				t.Parallel()
				url := newDatabase(t, postgresServer(t), "default_transaction_isolation", isolation)
				b := postgresMember(t, url, lasting)
				if _, err := b.Line(t.Context(), "k"); err != nil { // the tables are there
					t.Fatal(err)
				}
				conn := connect(t, url)
				defer conn.Close(context.Background())
				tx, err := conn.Begin(t.Context())
				check(t, err)
				_, err = tx.Exec(t.Context(), "SELECT fencelock_member($1, false, $2, $3)", lasting.MaxTTL.Microseconds(), lasting.String(), first == "Initialise")
				check(t, err)
				second := make(chan error, 1)
				go func() {
					if first == "Initialise" {
						_, err := b.Enter(t.Context(), ballotOn("k"))
						second <- err
						return
					}
					second <- b.Initialise(t.Context())
				}()
				blocked(t, url)
				check(t, tx.Commit(t.Context()))
				check(t, <-second)
				vote(t, b, ballotOn("other"))
			})
		}
	}
}

// blocked waits until a session waits for another.
func blocked(t *testing.T, url string) {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(context.Background())
	until(t, "a step waits", func() error {
		var n int
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("none does")
		}
		return err
	})
}
