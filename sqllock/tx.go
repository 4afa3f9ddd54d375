package sqllock

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/errs"
	"github.com/fencelock/fencelock/internal/limit"
)

// SQLTx is what Tx needs of a transaction. A *sql.Tx has it. A *sql.DB and a *sql.Conn lack
// Commit, so they are no SQLTx.
type SQLTx interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	Commit() error
}

// PgxTx is what TxPgx needs of a transaction. A pgx.Tx has it. A pgx.Conn and a pgxpool.Pool
// lack Commit, so they are no PgxTx.
type PgxTx[R interface{ Scan(dest ...any) error }] interface {
	QueryRow(ctx context.Context, query string, args ...any) R
	Commit(ctx context.Context) error
}

// TxLocker takes locks that end with one transaction. Like the transaction, it is for one
// goroutine at a time.
//
// Such a lock is exclusive, has no lease, and nothing renews it. It ends when the transaction commits or
// is rolled back, or when the server closes its connection, after others see what was committed.
//
// The lock and the locks of a Client on the same tables exclude each other. They stand in one line, which is
// served in order of arrival; a transaction that waits is passed over only if its process stops for ten seconds.
// The processes that wait for the key of a transaction read its line ten times a second. Tokens rise over both
// kinds. A token is drawn outside the transaction, so a rollback does not take it back.
//
// What it cannot promise:
//
//   - The holder is told of nothing. If the server ends the transaction, the next one gets the lock, and the
//     holder learns it from its next statement or from COMMIT, which fails. So COMMIT is the fence of what the
//     transaction writes. Whatever else it does needs the token and a guard (package fence).
//   - A transaction whose client hangs or is gone keeps its locks until the server notices that. Set
//     idle_in_transaction_session_timeout and tcp_keepalives_idle on PostgreSQL,
//     idle_transaction_timeout on MariaDB, and wait_timeout on MySQL.
//   - ROLLBACK TO a savepoint that is older than the lock ends the lock on PostgreSQL. On
//     MariaDB and MySQL it does if nothing was written or locked before the savepoint.
//   - The database does not see this waiting in its search for deadlocks. Transactions that wait for each
//     other's locks alone are found within about a second, and one or more of them get ErrDeadlock. Where a
//     row, or a lease of a Client, is among what is waited for, the waiting goes on until a context ends.
//   - Break ends the claim, but not the transaction. End that in the database instead.
//   - A database that loses what it has acknowledged, as a failover to a standby that lags
//     behind does, loses the line, too. But it also ends every transaction.
//
// A cluster that takes writes on several servers, such as Galera or Group Replication with several
// primaries, is refused with ErrInvalid, within a minute if the cluster becomes one later: a row that is locked
// on one server is free on the others.
//
// PgBouncer in transaction pooling works.
type TxLocker struct {
	b    *Backend
	bad  error
	scan func(ctx context.Context, query string, args []any, to any) error // runs one query in the transaction

	name string // of the transaction, in the IDs of its claims
	mu   sync.Mutex
	held map[string]*TxLock
}

// TxLock is a lock that a transaction holds.
type TxLock struct {
	b      *Backend
	claim  driverutil.ClaimRef
	number int64 // of what the transaction locks, on MariaDB and MySQL
	token  fence.Token
}

// Tx returns what takes locks that end with tx. One per transaction is best, because it knows
// the keys that it has locked.
//
// tx must be a transaction on the database that b keeps its locks in, and find the tables of b in its search_path.
// It needs a connection of b's pool for a moment while tx has its own. With one pool for both, transactions that
// have all of its connections wait for each other until their contexts end: let b have a *sql.DB of its own.
func Tx(b *Backend, tx SQLTx) *TxLocker {
	l := newTxLocker(b, tx == nil)
	l.scan = func(ctx context.Context, query string, args []any, to any) error {
		return tx.QueryRowContext(ctx, query, args...).Scan(to)
	}
	return l
}

// TxPgx is Tx for a transaction of native pgx. b must be one of Postgres.
func TxPgx[R interface{ Scan(dest ...any) error }](b *Backend, tx PgxTx[R]) *TxLocker {
	l := newTxLocker(b, tx == nil)
	if l.bad == nil && b.Info().Name != Postgres.String() {
		l.bad = errors.New("pgx speaks to PostgreSQL alone: make the Backend with sqllock.Postgres")
	}
	l.scan = func(ctx context.Context, query string, args []any, to any) error {
		return tx.QueryRow(ctx, query, args...).Scan(to)
	}
	return l
}

func newTxLocker(b *Backend, none bool) *TxLocker {
	l := &TxLocker{b: b, name: rand.Text(), held: map[string]*TxLock{}}
	switch {
	case b.bad != nil:
		l.bad = b.bad
	case none:
		l.bad = errors.New("no transaction was given: pass the *sql.Tx that BeginTx returned")
	case b.servers() == nil:
		l.bad = errSQLiteTx
	}
	return l
}

var errSQLiteTx = errors.New("a transaction on SQLite that writes excludes all others that write, and the tables of " +
	"locks are among what it locks: begin it with BEGIN IMMEDIATE, and it needs no other lock")

// Lock waits in line for the lock of key, and holds it then until the transaction ends. If the
// locker has the lock already, Lock returns it.
//
// While it waits it leaves the transaction alone, so a transaction whose Lock has ended with an error can be
// used, with one exception: if the statement that binds the lock to it fails, or ctx ends within this one round
// trip, the transaction may have to be rolled back.
//
// Under READ COMMITTED every statement after Lock sees what the holder before has committed.
// Under REPEATABLE READ and SERIALIZABLE a transaction sees the database as it was at its first
// statement. So on PostgreSQL Lock must come first then, or it returns ErrInvalid. On MariaDB
// and MySQL, where REPEATABLE READ is the default, that is not checked: take all locks before
// the first SELECT.
//
// It costs three round trips if the lock is free, one of them in the transaction, and one more on MariaDB and
// MySQL. Errors match fencelock.ErrNotAcquired if ctx ended (and ctx's error), ErrUnavailable if the database did
// not respond, ErrKind if a semaphore has the key, ErrDeadlock if transactions wait for each other, and
// ErrInvalid. An error of the statement in the transaction is the driver's.
func (l *TxLocker) Lock(ctx context.Context, key string) (*TxLock, error) {
	return l.lock(ctx, key, false)
}

// TryLock is Lock for a lock that is free now. If it is not, the error matches
// fencelock.ErrNotAcquired and holds a *driver.BusyError that says who is first in line.
func (l *TxLocker) TryLock(ctx context.Context, key string) (*TxLock, error) {
	return l.lock(ctx, key, true)
}

// Key returns the name of the lock.
func (l *TxLock) Key() string { return l.claim.Key }

// Token returns the fencing token, which is larger than those of all holders before.
func (l *TxLock) Token() fence.Token { return l.token }

// Ended says that the transaction has ended, so that a waiter is granted the lock at once and not within a tenth of
// a second or a little more. Call it after COMMIT or ROLLBACK, if at all. It costs one round trip.
func (l *TxLock) Ended(ctx context.Context) error {
	return l.b.swap.Settle(ctx, l.claim.Key)
}

// txTTL is the lease of the claim of a transaction until the transaction keeps it.
const txTTL = 10 * time.Second

func (l *TxLocker) lock(ctx context.Context, key string, try bool) (*TxLock, error) {
	if l.bad != nil {
		return nil, fmt.Errorf("sqllock: %w: %w", errs.Invalid, l.bad)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if held := l.held[key]; held != nil {
		// It may have ended at a savepoint.
		err := l.hold(ctx, held, "0")
		if err == nil {
			return held, nil
		} else if !errors.Is(err, errUnbound) && !driver.Gone(err) {
			return nil, txError(key, err)
		}
		delete(l.held, key)
	}
	if err := l.b.servers().oneWriter(ctx); err != nil {
		return nil, txError(key, notAcquired(ctx, driver.Ticket{}, err))
	}
	t, err := l.obtain(ctx, driver.Claim{
		Key: key, ID: l.name + rand.Text(), Owner: owner(), Note: "a database transaction",
		Capacity: driver.RW, Weight: driver.RW, TTL: txTTL, NoWait: try, Span: 1,
	})
	if err != nil {
		return nil, txError(key, err)
	}
	held, err := l.keep(ctx, t)
	if err != nil {
		l.b.giveUp(t)
		return nil, txError(key, err)
	}
	l.held[key] = held
	return held, nil
}

// keep binds a claim that is granted to the transaction. The transaction's lock is taken
// first, so the claim is never without a lease and without a transaction.
func (l *TxLocker) keep(ctx context.Context, t driver.Ticket) (*TxLock, error) {
	t.TTL = txTTL
	version, err := l.b.swap.Lend(ctx, t)
	if err != nil {
		return nil, err
	}
	number, err := l.b.store.Bindable(ctx, t.Key)
	if err != nil {
		return nil, err
	}
	held := &TxLock{l.b, driverutil.Ref(t.Key, t.ID), number, fence.Token(t.Token)}
	return held, l.hold(ctx, held, version)
}

// hold has the transaction take the lock of the claim, and then binds the claim to it.
func (l *TxLocker) hold(ctx context.Context, k *TxLock, version string) error {
	text, params, err := l.b.store.Hold(k.claim.Key, k.claim.ID, k.number, version)
	if err != nil {
		return err
	}
	var seen bool
	if err := l.scan(ctx, text, params, &seen); err != nil {
		return &holdError{l.b.servers().fail("hold the claim on", k.claim.Key, err)}
	}
	if !seen && l.b.Info().Name == MySQL.String() {
		return errUnbound // there is no such row to lock
	}
	err = k.bind(ctx)
	if err == nil && !seen {
		return errOldSnapshot
	}
	return err
}

var (
	errOldSnapshot = fmt.Errorf("%w: the transaction sees the database as it was before it got the lock: let Lock be "+
		"its first statement, and its only one of this kind, or begin it with READ COMMITTED", errs.Invalid)
	errCircle = fmt.Errorf("%w: transactions take the same keys in different orders: roll this one back and begin "+
		"again, and take keys in one order", errs.Deadlock)
	errUnbound = fmt.Errorf("%w: the transaction has ended, or it is one on another database than the locks are in: "+
		"pass one that is open, on the same primary", errs.Invalid)
)

// holdError is an error of the transaction itself.
type holdError struct{ err error }

func (e *holdError) Error() string {
	return "the transaction may have to be rolled back: " + e.err.Error()
}

func (e *holdError) Unwrap() error { return e.err }

// txError puts the key around what kept a transaction from its lock.
func txError(key string, err error) error {
	var busy *driver.BusyError
	switch {
	case errors.As(err, &busy):
		err = fmt.Errorf("%w: %w", errs.NotAcquired, err)
	case errors.Is(err, errs.Invalid), errors.Is(err, driver.ErrKind), errors.Is(err, errs.NotAcquired),
		errors.Is(err, errs.Deadlock), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case errors.Is(err, driver.ErrPermanent), errors.Is(err, sql.ErrTxDone):
		err = fmt.Errorf("%w: %w", errs.Invalid, err)
	case !errors.As(err, new(*holdError)):
		err = fmt.Errorf("%w: %w", errs.Unavailable, err)
	}
	return fmt.Errorf("sqllock: lock %.80q in a transaction: %w", key, err)
}

// obtain enters a line and returns when the claim is granted. Otherwise the claim is given up.
func (l *TxLocker) obtain(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	t, err := l.b.Enter(ctx, c)
	if err != nil && !isAnswer(err) {
		l.b.giveUp(driver.Ticket{Claim: c}) // it may arrive yet
		err = notAcquired(ctx, t, err)
	}
	for err == nil && !t.Granted {
		t, err = l.await(ctx, t)
		if err != nil && !driver.Gone(err) {
			l.b.giveUp(t)
		}
	}
	return t, err
}

// await returns after about a second: the lease of a claim that still waits is renewed then. A
// transaction that holds other locks may be waiting for itself.
func (l *TxLocker) await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	next, err := l.b.Await(ctx, t)
	if err == nil && !next.Granted {
		t = next
		err = l.b.Renew(ctx, []driver.Ticket{t})[0]
		if err == nil && len(l.held) > 0 {
			err = l.circle(ctx, t)
		}
	}
	if err != nil {
		return t, notAcquired(ctx, t, err)
	}
	return next, nil
}

// notAcquired is err, unless ctx has ended: then it says so, and who is first in line.
func notAcquired(ctx context.Context, t driver.Ticket, err error) error {
	switch ended := driverutil.Ended(ctx); {
	case ended == nil:
		return err
	case t.Head != nil:
		return fmt.Errorf("%w: %w: %w", errs.NotAcquired, t.Head, ended)
	default:
		return fmt.Errorf("%w: %w", errs.NotAcquired, ended)
	}
}

// circle returns errCircle if the claim of t waits for its own transaction: over those before it, and what else
// their transactions wait for.
func (l *TxLocker) circle(ctx context.Context, t driver.Ticket) error {
	seen := map[string]bool{l.name: true}
	before, err := l.before(ctx, t.Key, l.name)
	for len(before) > 0 && err == nil {
		next := before[0]
		before = before[1:]
		if next == l.name {
			return errCircle
		}
		if seen[next] {
			continue
		}
		seen[next] = true
		var keys []string
		keys, err = l.b.store.Search(ctx, next)
		for _, key := range keys {
			var more []string
			if err == nil {
				more, err = l.before(ctx, key, next)
			}
			before = append(before, more...)
		}
	}
	return err
}

// before returns the names of the transactions that one waits for in the line of key, if it does: its name is there
// for a while after it has left.
func (l *TxLocker) before(ctx context.Context, key, name string) (names []string, err error) {
	ids, err := l.b.swap.Claims(ctx, key)
	own := slices.IndexFunc(ids, func(id string) bool { return strings.HasPrefix(id, name) })
	for _, id := range ids[:max(0, own)] {
		if len(id) == 2*len(name) { // see TxLocker.lock
			names = append(names, id[:len(name)])
		}
	}
	return names, err
}

// bind ends the lease of a granted claim that a transaction keeps from now on.
func (l *TxLock) bind(ctx context.Context) error {
	if done, err := l.b.store.Bind(ctx, l.claim.Key, l.claim.ID, l.number); done || err != nil {
		return err
	}
	ids, err := l.b.swap.Claims(ctx, l.claim.Key)
	if err == nil && !slices.Contains(ids, l.claim.ID) {
		return driver.GoneError{}
	}
	return cmp.Or(err, errUnbound)
}

// giveUp takes a claim out of its line, in the background. What fails is tried again until the
// lease would have ended; a claim that is bound then goes with its transaction.
func (b *Backend) giveUp(t driver.Ticket) {
	b.servers().background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, txTTL)
		defer cancel()
		undecided := func(err error) bool { return !driver.Gone(err) && !errors.Is(err, driver.ErrPermanent) }
		_ = retry(ctx, undecided, 10*time.Millisecond, time.Second, func() error {
			return b.Leave(ctx, t, driver.Exit{Tombstone: true})
		})
	})
}

// owner names this process to people.
func owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	name := fmt.Sprintf("%s/%d", host, os.Getpid())
	return strings.ToValidUTF8(name[max(0, len(name)-limit.Owner):], "")
}
