package sqllock

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// sqliteInfo: leases below 100 ms would end while their holder waits for another
// process to release the write lock, or for a disk that syncs.
var sqliteInfo = driver.Info{
	Name:      "sqlite",
	Fair:      true,
	Fencing:   true,
	Linger:    true,
	Mark:      true,
	Semaphore: true,
	Push:      true,
	Lease:     driver.PerClaim,
	MinTTL:    100 * time.Millisecond,
	MaxTTL:    366 * 24 * time.Hour,
}

// askFile is every millisecond soon after something happened, every ten later on, and
// every second while nobody waits but an Alarm is set.
func askFile(quiet time.Duration, waiting bool, _ float64) time.Duration {
	switch {
	case !waiting:
		return time.Second
	case quiet < 100*time.Millisecond:
		return time.Millisecond
	}
	return 10 * time.Millisecond
}

//go:embed query/sqlite/*.sql
var sqliteQueries embed.FS

// sqlite is the store on SQLite.
type sqlite struct {
	config
	turn    chan struct{} // held by the transaction that writes: SQLite has one writer
	opening chan struct{} // held by the call that opens the file
	enters  atomic.Uint32 // paces the sweep

	mu     sync.Mutex
	opened *database // nil until the file is open
	before *database // the opening that has ended, if opened is nil
}

// ready opens the file.
func (s *sqlite) ready(ctx context.Context) error {
	_, err := s.database(ctx)
	return err
}

// ignoresContext: opening the file, and a busy timeout, may take long.
func (s *sqlite) ignoresContext() bool {
	d, _ := s.current()
	return d == nil || d.timeout > 0
}

// statements are prepared once, and by database/sql again for each connection.
type statements struct {
	enterFree, leaveFree, begin, summary, adopt, purge, scan, grant, claim, first, claimByToken,
	join, reenter, renew, remove, linger, mark, tombstoneWrite, tombstoneRead, queue, grantOf, line, next, news,
	sweepRange, sweepDead, sweepIdle, sweepRead, sweepWrite, memberRead, memberWrite *sql.Stmt
}

// files names the file of each statement.
func (s *statements) files() map[string]**sql.Stmt {
	return map[string]**sql.Stmt{
		"enter_free": &s.enterFree, "leave_free": &s.leaveFree, "begin": &s.begin,
		"summary": &s.summary, "adopt": &s.adopt, "purge": &s.purge, "scan": &s.scan,
		"grant": &s.grant, "claim": &s.claim, "first": &s.first, "claim_by_token": &s.claimByToken,
		"join": &s.join, "reenter": &s.reenter, "renew": &s.renew, "remove": &s.remove,
		"linger": &s.linger, "mark": &s.mark, "tombstone_write": &s.tombstoneWrite, "tombstone_read": &s.tombstoneRead,
		"queue": &s.queue, "grant_of": &s.grantOf, "line": &s.line, "next": &s.next,
		"news": &s.news, "sweep_range": &s.sweepRange, "sweep_dead": &s.sweepDead, "sweep_idle": &s.sweepIdle,
		"sweep_read": &s.sweepRead, "sweep_write": &s.sweepWrite,
		"member_read": &s.memberRead, "member_write": &s.memberWrite,
	}
}

func (s *statements) close() error {
	var errs []error
	for _, p := range s.files() {
		if *p != nil {
			errs = append(errs, (*p).Close())
		}
	}
	return errors.Join(errs...)
}

func openSQLite(c config) store {
	return &sqlite{config: c, turn: make(chan struct{}, 1), opening: make(chan struct{}, 1)}
}

func (s *sqlite) close() error {
	d, _ := s.current()
	if d == nil {
		return nil
	}
	return d.statements.close()
}

// query returns the text of an embedded statement.
func (s *sqlite) query(name string) string {
	text, err := sqliteQueries.ReadFile("query/sqlite/" + name + ".sql")
	if err != nil {
		panic("sqllock: no statement " + name) // an embedded file is missing
	}
	return s.names.statement(string(text))
}

func (s *sqlite) notifier() notifier { return watchFile(s.path()) }

func (s *sqlite) notify() { notifyFile(s.path()) }
