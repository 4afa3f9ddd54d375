package sql_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/swapsql"
	"github.com/fencelock/fencelock/sqllock"
	"github.com/fencelock/fencelock/swaplock"
)

// arrivals is a line of a holder and of those who wait behind it.
type arrivals struct {
	t  *testing.T
	st *swapsql.Store
}

func newArrivals(t *testing.T, s *store) *arrivals {
	use(t, s.backend(t), "tables")
	x := &arrivals{t, swapStore(s.open(t), s.dialect)}
	t.Cleanup(func() {
		st, err := x.st.Read(context.Background(), "k", -1)
		must(t, err)
		_, err = x.st.Swap(context.Background(), "k", &swaplock.Change{
			If: st.Version, Seen: st.Seen, Arrivals: len(st.Arrivals), Content: swaplock.Content{Last: st.Last},
		})
		must(t, err)
	})
	return x
}

// add has a claim arrive whose owner has a name of that length.
func (x *arrivals) add(id string, length int) *swaplock.Arrival {
	x.t.Helper()
	a := &swaplock.Arrival{
		ID: id, Claim: fmt.Appendf(nil, `{"id":%q,"owner":%q,"ttl":"1m0s"}`, id, strings.Repeat("o", length)),
		Span: 1, Capacity: 4, TTL: time.Minute, WaitTTL: time.Minute, Waits: true, Full: true,
	}
	p, err := x.st.Arrive(soon(x.t), "k", a)
	must(x.t, err)
	if p == nil {
		x.t.Fatalf("%s may not arrive", id)
	}
	a.Token, a.At = p.Token, p.At
	return a
}

// read must find those among the first arrivals.
func (x *arrivals) read(most int, more bool, want ...string) swaplock.State {
	x.t.Helper()
	st, err := x.st.Read(soon(x.t), "k", most)
	must(x.t, err)
	var got []string
	for _, a := range st.Arrivals {
		got = append(got, a.ID)
	}
	if !slices.Equal(got, want) || st.More != more {
		x.t.Errorf("of the arrivals %v were read, and there are more: %v; want %v and %v", got, st.More, want, more)
	}
	return st
}

func (x *arrivals) withdraw(a *swaplock.Arrival, want bool) {
	x.t.Helper()
	if done, err := x.st.Withdraw(soon(x.t), "k", a); done != want || err != nil {
		x.t.Errorf("%s was withdrawn: %v, %v; want %v", a.ID, done, err, want)
	}
}

// TestWaiterIsWithdrawnOnce: who gives up is taken out of the middle of a line. A swap of what was read before
// would cut the others at the wrong place, so it does nothing.
func TestWaiterIsWithdrawnOnce(t *testing.T) {
	each(t, []kind{sqlite, postgres, mariaDB}, func(t *testing.T, s *store) {
		x := newArrivals(t, s)
		x.add("holder", 1)
		a, _, c := x.add("a", 1), x.add("b", 1), x.add("c", 1)
		before := x.read(16, false, "holder", "a", "b", "c")
		x.withdraw(a, true)
		version, err := x.st.Swap(soon(t), "k", &swaplock.Change{
			If: before.Version, Seen: before.Seen, Content: before.Content, Arrivals: 2,
		})
		if version != "" || err != nil {
			t.Errorf("a swap of what was read before a claim left answered %q, %v", version, err)
		}
		x.withdraw(a, false)
		after := x.read(16, false, "holder", "b", "c")
		// The lease of the holder may have ended: somebody may be granted, by a step.
		after.Content.Open = after.Now.Add(-time.Second)
		_, err = x.st.Swap(soon(t), "k", &swaplock.Change{If: after.Version, Seen: after.Seen, Content: after.Content})
		must(t, err)
		x.withdraw(c, false)
		x.read(-1, false, "holder", "b", "c")
	})
}

// TestLongLineIsReadInPart: of thousands who wait only the first ones are read, and each of them whole.
func TestLongLineIsReadInPart(t *testing.T) {
	each(t, []kind{sqlite, postgres, mariaDB}, func(t *testing.T, s *store) {
		x := newArrivals(t, s)
		x.add("holder", 9000)
		x.read(16, false, "holder")
		x.add("a", 3000)
		x.read(1, true, "holder")
		x.read(16, false, "holder", "a")
		x.read(-1, false, "holder", "a")
		st := x.read(16, false, "holder", "a")
		st.Content.Document = []byte(`{"format":1}`)
		_, err := x.st.Swap(soon(t), "k", &swaplock.Change{
			If: st.Version, Seen: st.Seen, Content: st.Content, Arrivals: 1,
		})
		must(t, err)
		x.add("b", 3000)
		x.read(16, false, "a", "b")
		x.add("c", 3000)
		x.read(16, true, "a", "b")
		x.read(1, true, "a")
		x.read(-1, false, "a", "b", "c")
	})
}

// TestTombstoneOutlivesALateStatement: a server goes on with an Enter for a second after its caller has left. A
// tombstone lasts longer than that, however short the lease of the claim is.
func TestTombstoneOutlivesALateStatement(t *testing.T) {
	each(t, []kind{sqlite, postgres, mariaDB}, func(t *testing.T, s *store) {
		b := s.polling(t)
		hold(t, b, claim("k")) // so that the line has a document
		wait(t, b, claim("k"))
		long, short := ttl(claim("k"), time.Hour), ttl(claim("k"), time.Millisecond)
		for _, c := range []driver.Claim{long, short} {
			if err := b.Leave(soon(t), driver.Ticket{Claim: c}, driver.Exit{Tombstone: true}); !driver.Gone(err) {
				t.Fatalf("Leave of a claim that is not there: %v", err)
			}
		}
		var document struct {
			Tombstones []struct {
				ID    string
				Until time.Time
			}
		}
		must(t, json.Unmarshal([]byte(ask[string](t, s, "SELECT line FROM fencelock_swap")), &document))
		until := map[string]time.Time{}
		for _, tomb := range document.Tombstones {
			until[tomb.ID] = tomb.Until
		}
		left := until[long.ID].Add(-time.Hour) // when the first claim left, which was before the second one
		if lasts := until[short.ID].Sub(left); len(until) != 2 || lasts < 2*time.Second {
			t.Errorf("of %d tombstones, that of a lease of a millisecond lasts %v", len(until), lasts)
		}
		leaveAll(t, b)
	})
}

// TestMessageSaysWhenItCame: who does what a message says must know whether its client has given up since.
func TestMessageSaysWhenItCame(t *testing.T) {
	each(t, all, func(t *testing.T, s *store) {
		x := newArrivals(t, s)
		x.add("holder", 1)
		before := x.read(16, false, "holder")
		const m = `{"leave":"nobody"}`
		if added, err := x.st.Message(soon(t), "k", []byte(m)); !added || err != nil {
			t.Fatalf("the message was not added: %v", err)
		}
		st := x.read(16, false, "holder", "")
		got := st.Arrivals[1]
		if !got.Message || string(got.Claim) != m || got.At.Before(before.Now) || got.At.After(st.Now) {
			t.Errorf("between %v and %v came %+v", before.Now, st.Now, got)
		}
	})
}

// TestLongLineIsCompressedByLZ4: PostgreSQL compresses a line of hundreds at each step, and is slow at that by default.
func TestLongLineIsCompressedByLZ4(t *testing.T) {
	only(t, postgres, func(t *testing.T, s *store) {
		use(t, s.backend(t), "tables")
		has := ask[bool](t, s, "SELECT EXISTS (SELECT FROM pg_settings "+
			"WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals))")
		n := ask[int](t, s, "SELECT count(*) FROM pg_attribute a "+
			"WHERE attrelid = 'fencelock_swap'::regclass AND to_jsonb(a) ->> 'attcompression' = 'l'")
		if has != (n == 2) {
			t.Errorf("the server has lz4: %v, and %d columns are compressed by it", has, n)
		}
	})
}

var swapDialects = map[sqllock.Dialect]*swapsql.Dialect{
	sqllock.SQLite: swapsql.SQLite, sqllock.Postgres: swapsql.Postgres, sqllock.MySQL: swapsql.MySQL,
}

// swapStore is the store below a Backend, on connections of its own.
func swapStore(db *sql.DB, d sqllock.Dialect) *swapsql.Store {
	return swapsql.New(&plainConns{db: db, dialect: d}, swapDialects[d], swapsql.Options{})
}

// plainConns runs one statement after another, and knows nothing of pools and files.
type plainConns struct {
	db       *sql.DB
	dialect  sqllock.Dialect
	mu       sync.Mutex
	sessions swapsql.Sessions
}

func (p *plainConns) Run(ctx context.Context, st *swapsql.Statement) (changed int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if changed, err = p.once(ctx, st); !p.undone(err) {
			return changed, err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// undone reports whether another process was in the way.
func (p *plainConns) undone(err error) bool {
	if p.dialect == sqllock.SQLite {
		return err != nil && strings.Contains(err.Error(), "locked")
	}
	return swapDialects[p.dialect].Undone(err)
}

func (p *plainConns) once(ctx context.Context, st *swapsql.Statement) (int64, error) {
	if p.dialect == sqllock.SQLite {
		return p.inTransaction(ctx, st)
	}
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	r, err := p.sessions.Send(ctx, conn, swapDialects[p.dialect], st)
	if err != nil {
		return 0, err
	}
	return st.Take(r)
}

// inTransaction runs st on SQLite, and what comes then.
func (p *plainConns) inTransaction(ctx context.Context, st *swapsql.Statement) (int64, error) {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // unless it was committed
	r, err := onSQLite(ctx, tx, st)
	for _, next := range st.Then {
		if err == nil && r.Changed > 0 {
			_, err = onSQLite(ctx, tx, next)
		}
	}
	if err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	return st.Take(r)
}

func onSQLite(ctx context.Context, tx *sql.Tx, st *swapsql.Statement) (*swapsql.Result, error) {
	text, clock := swapsql.Clocked(st.Text)
	args := st.Args
	st.Clock = time.Now().UnixMicro()
	if clock >= 0 {
		args = slices.Insert(slices.Clone(args), clock, any(st.Clock))
	}
	return st.Send(ctx, tx, text, args)
}
