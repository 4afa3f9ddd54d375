package mariadb_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// endings are the ways in which the server ends statements at random moments.
func endings(t *testing.T) []ending {
	all := []ending{
		{name: "KillQueryWithoutPause"},
		{name: "KillQueryEachMillisecond", gap: time.Millisecond},
		{name: "KillQueryEach10Milliseconds", gap: 10 * time.Millisecond},
	}
	if onMySQL(t, openDSN(t, dsnOf(server(t), "", ""))) {
		return all // its max_execution_time ends nothing but a SELECT of the client's
	}
	return append(all,
		ending{name: "MaxStatementTime", dsn: "max_statement_time=0.0004"},
		ending{name: "MaxStatementTime3Milliseconds", dsn: "max_statement_time=0.003"})
}

type ending struct {
	name, dsn string
	gap       time.Duration
}

// begin ends statements in a database until ctx ends. The caller waits for wg.
func (e ending) begin(ctx context.Context, t *testing.T, wg *sync.WaitGroup, database string) {
	if e.dsn != "" {
		return // the server does
	}
	admin := openDSN(t, dsnOf(server(t), "", ""))
	wg.Go(func() {
		for ctx.Err() == nil {
			ids, err := connections(admin, database)
			if err != nil {
				t.Error(err)
				return
			}
			for _, id := range ids {
				_, _ = admin.Exec(fmt.Sprintf("KILL QUERY %d", id)) // it may have gone
				select {
				case <-time.After(e.gap):
				case <-ctx.Done():
				}
			}
		}
	})
}

// connections returns the numbers of those to a database.
func connections(admin *sql.DB, database string) (ids []int64, err error) {
	rows, err := admin.Query("SELECT id FROM information_schema.processlist WHERE db = ?", database)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// TestProceduresHaveNoSubquery holds the schema to its first rule: of a statement that was
// ended, a subquery is false or NULL, and the procedure commits.
func TestProceduresHaveNoSubquery(t *testing.T) {
	t.Parallel()
	text, err := sqllock.Schema(sqllock.MySQL, nil)
	if err != nil {
		t.Fatal(err)
	}
	for n, line := range strings.Split(text, "\n") {
		code, _, _ := strings.Cut(line, "--")
		code = strings.ReplaceAll(code, "FROM (SELECT", "")
		if strings.Contains(code, "(SELECT") || strings.Contains(code, "EXISTS (") && !strings.HasPrefix(code, "CREATE") {
			t.Errorf("line %d has a subquery: %s", n+1, line)
		}
	}
}

// TestTryThatIsEndedTakesNoHeldLock tries a lock that is held, while the server ends the
// statements of the try. An Enter whose read of the line was ended must not find it empty.
func TestTryThatIsEndedTakesNoHeldLock(t *testing.T) {
	t.Parallel()
	for _, e := range endings(t) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			name := newDatabase(t)
			holder := backend(t, openDSN(t, dsnOf(server(t), name, "")))
			ticket := hold(t, holder, claim("k"))
			apart(t, holder, "k")
			ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			e.begin(ctx, t, &wg, name)
			var tries, ended atomic.Int64
			for range 3 {
				b := backend(t, openDSN(t, dsnOf(server(t), name, e.dsn)))
				wg.Go(func() {
					for ctx.Err() == nil {
						got, err := b.Enter(soon(t), noWait(claim("k"))) // to its end: nothing of it goes on behind
						tries.Add(1)
						if _, ok := err.(*driver.BusyError); !ok {
							ended.Add(1)
						}
						if err == nil {
							t.Errorf("a try of the held lock was granted: %+v", got)
							return
						}
					}
				})
			}
			wg.Wait()
			t.Logf("%d tries, %d were ended", tries.Load(), ended.Load())
			if tries.Load() == ended.Load() || ended.Load() == 0 {
				t.Errorf("%d of %d tries were ended; want some, and not all", ended.Load(), tries.Load())
			}
			if err := holder.Renew(soon(t), []driver.Ticket{ticket})[0]; err != nil {
				t.Errorf("Renew by the holder: %v", err)
			}
			leave(t, holder, ticket)
			empty(t, holder)
		})
	}
}

// TestStatementsAreEndedUnderLoad has clients take three locks from each other while the
// server ends their statements. No two hold one, and tokens rise.
func TestStatementsAreEndedUnderLoad(t *testing.T) {
	t.Parallel()
	for _, e := range endings(t)[1:] {
		if e.dsn == "max_statement_time=0.0004" {
			continue // nobody gets through
		}
		t.Run(e.name, func(t *testing.T) { endUnderLoad(t, e) })
	}
}

func endUnderLoad(t *testing.T, e ending) {
	name := newDatabase(t)
	admin := openDSN(t, dsnOf(server(t), name, ""))
	empty(t, backend(t, admin))
	t.Cleanup(func() { leasesEnd(t, admin) })
	// A busy machine may need longer than six seconds for the least number of holds.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	least := time.Now().Add(6 * time.Second)
	keys := make([]shown, 3)
	var held atomic.Int64
	var wg sync.WaitGroup
	for range 6 {
		c := fencelock.New(backend(t, openDSN(t, dsnOf(server(t), name, e.dsn))), &fencelock.Options{TTL: 3 * time.Second, HandOff: 4})
		t.Cleanup(func() { c.Close() })
		for range 2 {
			wg.Go(func() {
				for ctx.Err() == nil {
					i := rand.N(len(keys))
					l, err := c.Lock(ctx, fmt.Sprint("key", i))
					if err != nil {
						continue // the server may end every try
					}
					keys[i].take(t, l)
					<-time.After(rand.N(8 * time.Millisecond))
					keys[i].give(l)
					_ = l.Release(ctx)
					if held.Add(1) >= 20 && time.Now().After(least) {
						cancel()
					}
				}
			})
		}
	}
	e.begin(ctx, t, &wg, name)
	wg.Wait()
	if held.Load() < 20 {
		t.Errorf("%d holds; want progress", held.Load())
	}
	t.Logf("%d holds", held.Load())
}

// leasesEnd waits until no claim lives. The server may have ended the Leaves that Close sent;
// such claims are gone when their leases are over.
func leasesEnd(t *testing.T, admin *sql.DB) {
	until(t, "the leases that nobody could give back are over", func() bool {
		var n int
		err := admin.QueryRow(`SELECT
			(SELECT COUNT(*) FROM fencelock_claim WHERE expires > UNIX_TIMESTAMP(SYSDATE(6)) * 1000000) +
			(SELECT COUNT(*) FROM fencelock_line WHERE id IS NOT NULL AND expires > UNIX_TIMESTAMP(SYSDATE(6)) * 1000000)`).Scan(&n)
		return err == nil && n == 0
	})
}

// shown is who believes to hold a key.
type shown struct {
	mu     sync.Mutex
	holder *fencelock.Lease
	last   *fencelock.Lease
}

func (s *shown) take(t *testing.T, l *fencelock.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder != nil && s.holder.Err() == nil && l.Err() == nil {
		t.Errorf("two hold %s: tokens %d and %d", l.Key(), s.holder.Token(), l.Token())
	}
	if s.last != nil && l.Token() <= s.last.Token() && l.Err() == nil {
		t.Errorf("the token of %s fell from %d to %d", l.Key(), s.last.Token(), l.Token())
	}
	s.holder, s.last = l, l
}

func (s *shown) give(l *fencelock.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder == l {
		s.holder = nil
	}
}
