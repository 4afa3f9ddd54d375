package sqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencelock/fencelock/driver"
)

// Options change what New does by default. The zero value and nil are ready.
type Options struct {
	// Prefix begins the names of the tables, so that several sets of locks may be
	// kept in one database: 1 to 32 letters, digits and underscores. The default
	// is "fencelock_".
	Prefix string
	// CreateTables creates the tables at the first call if they are missing, also when
	// several processes do so at once. Without it the first call fails, and says so,
	// until the DDL that Schema returns has been run.
	CreateTables bool
	// Listen is for PostgreSQL: it lets waiters be woken by NOTIFY, which database/sql
	// cannot hear. It runs LISTEN on a connection of its own, calls heard once LISTEN
	// is in effect and again for each notification, and returns when ctx ends or the
	// connection is lost; it is called again then. It is called by one goroutine at a
	// time, while somebody waits or Alarm is in use, and a minute longer. channel is a
	// name that needs no quotes. With github.com/jackc/pgx/v5:
	//
	//	func(ctx context.Context, channel string, heard func()) error {
	//		conn, err := pgx.Connect(ctx, url)
	//		if err != nil {
	//			return err
	//		}
	//		defer conn.Close(context.WithoutCancel(ctx))
	//		if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
	//			return err
	//		}
	//		for {
	//			heard()
	//			if _, err := conn.WaitForNotification(ctx); err != nil {
	//				return err
	//			}
	//		}
	//	}
	//
	// With github.com/lib/pq it is a pq.Listener that is closed when ctx ends or its callback
	// hears of ListenerEventDisconnected; verify/sql/listen_test.go has all of it.
	//
	// The connection must be one to PostgreSQL itself: through a pooler in transaction
	// mode a LISTEN is lost. Without Listen the database is asked again and again; other
	// dialects refuse it.
	Listen func(ctx context.Context, channel string, heard func()) error

	// Member opens the database as a node of a quorum (package quorumlock), which takes
	// ballots; &driver.Membership{} will do. It is for SQLite and PostgreSQL. A database
	// that may have lost what it had acknowledged grants nothing for Membership.MaxTTL:
	//
	//   - SQLite after its host was started again, unless Durable says that the file loses
	//     nothing then (PRAGMA synchronous = FULL). A file that is put back from a copy has
	//     forgotten grants, and cannot know: delete its row 'member' in the table meta.
	//   - PostgreSQL after the server was started again or has recovered from a crash, also
	//     of one of its processes, unless Durable says that it loses nothing then: fsync and
	//     synchronous_commit are on, or every ballot is refused. Whatever Durable says, after
	//     a failover to a standby, and after a dump or a backup was put back, as far as that
	//     can be seen: a backup of the disks under a running server cannot, so delete its
	//     row 'member' in the table meta. A member is one server by itself: if two servers
	//     could both take themselves for the primary, one member would have two votes.
	Member *driver.Membership
}

// listen is the type of Options.Listen.
type listen = func(ctx context.Context, channel string, heard func()) error

// Backend keeps lines of claims in a database. Its methods may be called from many
// goroutines at once; each is one short transaction.
//
// Besides the goroutines that end with the calls that started them, it has at most
// one that wakes waiters, and one that listens for other processes, and these only
// while somebody waits or Alarm is in use.
type Backend struct {
	name    string
	info    driver.Info
	member  *driver.Membership // nil if it takes no ballots
	dialect dialect
	store   store
	bad     error // why no call can succeed

	ctx   context.Context // ends at Close
	stop  context.CancelFunc
	mu    sync.Mutex
	ended bool
	calls sync.WaitGroup // calls under way, and the watch
	open  atomic.Bool    // the store is ready
	first chan struct{}  // held by the call that makes it ready

	hub hub
}

var (
	_ driver.Backend    = (*Backend)(nil)
	_ driver.LineReader = (*Backend)(nil)
	_ driver.Alarm      = (*Backend)(nil)
)

// New returns a Backend that keeps locks in db. It asks nobody and cannot fail: bad
// options, missing tables, a file that cannot be written or tables of another
// format make the calls answer a *driver.PermanentError that says what to do.
//
// Values of Backend may be as many as you like; one per database and process is
// best, because its waiters wake each other without going through the file.
func New(db *sql.DB, d Dialect, o *Options) *Backend {
	if o == nil {
		o = &Options{}
	}
	b := &Backend{name: d.String(), first: make(chan struct{}, 1)}
	b.ctx, b.stop = context.WithCancel(context.Background())
	b.hub.init(b)
	k, ok := dialects[d]
	if !ok {
		b.bad = errDialect(d)
		return b
	}
	b.info, b.dialect = k.info, k
	n, err := newNames(o.Prefix)
	switch {
	case err != nil:
		b.bad = fmt.Errorf("%v: %w", d, err)
	case o.Listen != nil && !k.listens:
		b.bad = fmt.Errorf("%v: Options.Listen is for PostgreSQL: leave it out", d)
	case db == nil:
		b.bad = fmt.Errorf("%v: no database was given: pass the *sql.DB that sql.Open returned", d)
	default:
		b.store = k.open(config{db: db, names: n, create: o.CreateTables, node: newNode(), listen: o.Listen, member: o.Member != nil})
		b.info.Push = b.info.Push || o.Listen != nil
	}
	if o.Member != nil {
		b.join(*o.Member)
	}
	return b
}

// newNode draws the number that tells this Backend's claims from others'.
func newNode() int64 {
	var b [8]byte
	rand.Read(b[:])
	return int64(binary.LittleEndian.Uint64(b[:]) >> 1)
}

// Info says what the dialect promises.
func (b *Backend) Info() driver.Info { return b.info }

// Close ends the Backend's goroutines and prepared statements, and makes calls
// that are under way return ErrClosed. It leaves the database open and the claims
// where they are. It waits for a statement that SQLite is in the middle of, at
// most for the busy timeout that the DSN asks for.
func (b *Backend) Close() error {
	b.mu.Lock()
	was := b.ended
	b.ended = true
	b.mu.Unlock()
	b.stop()
	b.calls.Wait()
	if was || b.store == nil {
		return nil
	}
	return b.store.close()
}

// call runs f, once the store is ready, and delivers its effects. It returns soon
// after ctx ends. Where a statement may wait inside a driver that does not hear its
// context, f runs on a goroutine of its own and goes on behind, so it must keep its
// results to itself then. Otherwise it runs on the caller's, because an SQL engine
// written in Go wants a deep stack: growing a new one for each call costs a third of
// the call.
func (b *Backend) call(ctx context.Context, f func(ctx context.Context) (effects, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.bad != nil {
		return &driver.PermanentError{Err: b.bad}
	}
	if !b.begin() {
		return driver.ErrClosed
	}
	if b.open.Load() && !b.store.ignoresContext() {
		return b.explain(ctx, b.run(ctx, f))
	}
	done := make(chan error, 1)
	go func() { done <- b.run(ctx, f) }()
	select {
	case err := <-done:
		return b.explain(ctx, err)
	case <-ctx.Done():
		return ctx.Err()
	case <-b.ctx.Done():
		return driver.ErrClosed
	}
}

// run is call up to the end of f. Close ends the context of f.
func (b *Backend) run(ctx context.Context, f func(ctx context.Context) (effects, error)) error {
	defer b.calls.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	if err := b.ready(ctx); err != nil {
		return err
	}
	e, err := f(ctx)
	b.deliver(e)
	return err
}

// begin counts a call in, unless the Backend was closed.
func (b *Backend) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	b.calls.Add(1)
	return true
}

// ready makes the store ready before the first step.
func (b *Backend) ready(ctx context.Context) error {
	if b.open.Load() {
		return nil
	}
	select {
	case b.first <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-b.first }()
	if b.open.Load() {
		return nil
	}
	if err := b.store.ready(ctx); err != nil {
		return err
	}
	b.open.Store(true)
	b.hub.kick() // an Alarm may have been waiting for this
	return nil
}

// explain lets a call that was cut short say so, whatever the driver made of it.
func (b *Backend) explain(ctx context.Context, err error) error {
	if err == nil || answer(err) {
		return err
	}
	if ended := driver.Ended(ctx); ended != nil {
		return ended
	}
	if b.ctx.Err() != nil {
		return driver.ErrClosed
	}
	if errors.Is(err, context.DeadlineExceeded) {
		// Not the caller's: it must not take this for the end of its own context.
		return fmt.Errorf("%s: the database was busy for %v", b.name, lookFor)
	}
	return err
}

// answer reports whether err is an answer of the store, not a failure to get one.
func answer(err error) bool {
	var gone driver.ErrGone
	var busy *driver.BusyError
	var permanent *driver.PermanentError
	return errors.As(err, &gone) || errors.As(err, &busy) || errors.As(err, &permanent) ||
		errors.Is(err, driver.ErrKind) || errors.As(err, new(driver.ErrBallot)) || errors.As(err, new(*driver.QuarantineError))
}

// deliver tells everyone what a step did to them.
func (b *Backend) deliver(e effects) {
	b.hub.deliver(e)
	if e.strangers {
		b.store.notify()
	}
}

// Enter joins the line of c.Key, or starts again the lease of the claim with c.ID
// that is there already. A free lock takes one statement, any other one short
// transaction.
func (b *Backend) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if err := b.check(&c); err != nil {
		return driver.Ticket{}, &driver.PermanentError{Err: err}
	}
	return b.enter(ctx, c, false)
}

// enter is Enter, and Reenter of a claim that was lost.
func (b *Backend) enter(ctx context.Context, c driver.Claim, again bool) (driver.Ticket, error) {
	var t driver.Ticket
	err := b.call(ctx, func(ctx context.Context) (effects, error) {
		enter := b.store.enter
		if c.Ballot != 0 {
			enter = func(ctx context.Context, c *driver.Claim) (driver.Ticket, effects, error) {
				return b.store.(voter).vote(ctx, c, b.member, again)
			}
		}
		got, e, err := enter(ctx, &c)
		if err != nil {
			return e, err
		}
		t = got
		return e, nil
	})
	if err != nil {
		return driver.Ticket{}, err
	}
	return t, nil
}

// check refuses what the core never sends.
func (b *Backend) check(c *driver.Claim) error {
	switch {
	case b.bad != nil:
		return b.bad
	case c.Key == "" || len(c.Key) > driver.MaxKey:
		return fmt.Errorf("%s: a key has 1 to %d bytes, not %d", b.name, driver.MaxKey, len(c.Key))
	case c.ID == "":
		return fmt.Errorf("%s: the claim on %q has no id", b.name, c.Key)
	case c.Capacity < 1 || c.Capacity > driver.RW || c.Weight < 1 || c.Weight > c.Capacity:
		return fmt.Errorf("%s: a claim on %q cannot have weight %d of %d", b.name, c.Key, c.Weight, c.Capacity)
	case c.TTL < b.info.MinTTL || c.TTL > b.info.MaxTTL:
		return fmt.Errorf("%s: the lease on %q must last %v to %v, not %v", b.name, c.Key, b.info.MinTTL, b.info.MaxTTL, c.TTL)
	case c.Span < 1 || c.Span > driver.MaxSpan:
		return fmt.Errorf("%s: a claim on %q reserves 1 to %d tokens, not %d", b.name, c.Key, driver.MaxSpan, c.Span)
	case c.Ballot != 0 && b.member == nil:
		return fmt.Errorf("%s: no ballots are taken, as for %q: open it with Options.Member", b.name, c.Key)
	case c.Ballot < 0 || c.Ballot > lastToken-c.Span:
		return fmt.Errorf("%s: the ballot %d on %q is no token", b.name, c.Ballot, c.Key)
	}
	return nil
}

// Renew starts the leases of ts again, all in one transaction: one statement for
// each.
func (b *Backend) Renew(ctx context.Context, ts []driver.Ticket) []error {
	var errs []error
	// A call that is cut short goes on behind, when ts is the caller's again.
	mine := slices.Clone(ts)
	err := b.call(ctx, func(ctx context.Context) (effects, error) {
		got, e := b.store.renew(ctx, mine)
		errs = got
		return e, nil
	})
	out := make([]error, len(ts))
	for i := range out {
		if err != nil {
			out[i] = err
			continue
		}
		out[i] = b.explain(ctx, errs[i])
	}
	return out
}

// Leave takes the claim with t.ID out of the line, and wakes everyone that this
// makes granted. It takes one statement if nobody else is in line, and one short
// transaction otherwise. It needs room on the disk, as every write does.
func (b *Backend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	return b.call(ctx, func(ctx context.Context) (effects, error) {
		return b.store.leave(ctx, &t, e)
	})
}

// Break ends the claim of key whose span holds token, in one short transaction.
func (b *Backend) Break(ctx context.Context, key string, token int64, reason string) error {
	return b.call(ctx, func(ctx context.Context) (effects, error) {
		return b.store.end(ctx, key, token, reason)
	})
}
