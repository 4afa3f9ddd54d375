package sql_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/sqllock"
)

// TestTransactionThatWasLeftOpen: a program has given a connection back to the pool with a transaction on
// it, which sees the database as it was. A claim that enters over that connection is in line for everybody, and
// stays if the connection is closed.
func TestTransactionThatWasLeftOpen(t *testing.T) {
	each(t, onServers, func(t *testing.T, s *store) {
		others, db := s.polling(t), s.open(t) // of a pool without a bound each step takes the last one given back
		b := s.backendOn(t, db)
		leaveOpen := func() {
			conn, err := db.Conn(soon(t))
			must(t, err)
			run(t, conn, "BEGIN")
			_, err = conn.ExecContext(soon(t), "SELECT COUNT(*) FROM fencelock_swap")
			must(t, err)
			conn.Close()
		}
		leave(t, b, hold(t, b, claim("warm")))
		for _, key := range []string{"new", "used", "used"} {
			leaveOpen()
			held := hold(t, b, claim(key))
			busy(t, others, key)
			leaveOpen()
			renewed(t, b, held)
			leaveOpen()
			leave(t, b, held)
			leave(t, others, hold(t, others, claim(key)))
		}
		leaveOpen()
		held := hold(t, b, claim("kept"))
		db.Close()
		busy(t, others, "kept")
		leave(t, others, held)
	})
}

// TestMarkOfAnotherProcess: a process has left a line empty, and takes the lock again by a short statement. Another one
// has left a mark meanwhile, which it must be told.
func TestMarkOfAnotherProcess(t *testing.T) {
	polled(t, all, func(t *testing.T, s *store, b *sqllock.Backend) {
		other := s.polling(t)
		leave(t, b, hold(t, b, claim("k")))
		must(t, other.Leave(soon(t), hold(t, other, claim("k")), driver.Exit{Mark: "done"}))
		held := hold(t, b, claim("k"))
		steps.Same(t, "the mark", held.Mark, "done")
		leave(t, b, held)
	})
}

// TestAnIdOfNoBytesIsNobodys: a line that keeps no claim has no ID, which is not an empty one.
func TestAnIdOfNoBytesIsNobodys(t *testing.T) {
	polled(t, []kind{mariaDB.with("ClientFoundRows", "clientFoundRows=true")}, func(t *testing.T, s *store, b *sqllock.Backend) {
		ticket := hold(t, b, claim("k"))
		leave(t, b, ticket)
		ticket.ID = ""
		gone(t, "Renew without an ID", renew(b, soon(t), ticket))
	})
}

// many runs f for 64 keys at once.
func many(f func(i int, key string)) {
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() { f(i, fmt.Sprint("k", i)) })
	}
	wg.Wait()
}

// pair takes a free lock and gives it back.
func pair(b *sqllock.Backend, ctx context.Context, key string) error {
	ticket, err := b.Enter(ctx, claim(key))
	if err == nil && !ticket.Granted {
		return errors.New("it is held")
	}
	if err == nil {
		err = b.Leave(ctx, ticket, driver.Exit{})
	}
	return err
}

// usesAll uses all of them once, at once.
func usesAll(t testing.TB, b *sqllock.Backend) {
	t.Helper()
	goes := goes(t)
	many(func(_ int, key string) {
		well(t, key, pair(b, goes.ctx, key))
		goes.on()
	})
	goes.end()
}

// TestManyFreeLocksShareStatements: 64 goroutines use a lock each, or one lock after the other that nobody has used
// before, such as one for each order. One by one each pair would need two round trips.
func TestManyFreeLocksShareStatements(t *testing.T) {
	each(t, []kind{postgres, pgBouncer, serializable}, func(t *testing.T, s *store) {
		trips := s.trips(t)
		b := s.polling(t)
		usesAll(t, b)
		for _, fresh := range []bool{false, true} {
			trips()
			const rounds = 10
			goes := goes(t)
			many(func(_ int, key string) {
				for i := range rounds {
					if fresh {
						key = fmt.Sprint(key, "-", i)
					}
					well(t, key, pair(b, goes.ctx, key))
					goes.on()
				}
			})
			goes.end()
			if n := trips(); n > 128*rounds/2 {
				t.Errorf("%d pairs took %d round trips, of keys that are new: %v", 64*rounds, n, fresh)
			}
		}
		empty(t, b)
	})
}

// TestRowThatIsLockedHoldsUpNoOther: somebody has the row of one key in an open transaction, and the numbers of another
// one are damaged.
func TestRowThatIsLockedHoldsUpNoOther(t *testing.T) {
	only(t, postgres, func(t *testing.T, s *store) {
		b := s.polling(t)
		usesAll(t, b)
		s.do(t, "UPDATE fencelock_swap SET last = 9223372036854775807 WHERE lock_key = 'k33'")
		tx, err := s.db.BeginTx(soon(t), nil)
		must(t, err)
		defer tx.Rollback()
		run(t, tx, "SELECT 1 FROM fencelock_swap WHERE lock_key = 'k32' FOR UPDATE")
		var free, others sync.WaitGroup
		others.Add(62)
		free.Go(func() {
			others.Wait()
			well(t, "COMMIT", tx.Commit())
		})
		many(func(i int, key string) {
			if i != 32 && i != 33 {
				defer others.Done()
			}
			for range 5 {
				if err := pair(b, soon(t), key); (i == 33) != errors.Is(err, driver.ErrPermanent) || i != 33 && err != nil {
					t.Errorf("%s: %v", key, err)
				}
			}
		})
		free.Wait()
		s.do(t, "DELETE FROM fencelock_swap WHERE lock_key = 'k33'")
		empty(t, b)
	})
}

// TestAnswerOfABatchIsLost cuts the connection of a batch before it was applied, and after. No call is told that
// nothing was done, and each can be sent again.
func TestAnswerOfABatchIsLost(t *testing.T) {
	each(t, []kind{postgres.with("exec", "default_query_exec_mode=exec"), pgBouncer}, func(t *testing.T, s *store) {
		p := s.through(t)
		b := s.polling(t)
		usesAll(t, b)
		for _, action := range []faultproxy.Action{faultproxy.DropRequest, faultproxy.DropAnswer} {
			for _, of := range []string{"AS a (k text, i text", "AS v (k text, n int, number"} {
				var cuts, unknown atomic.Int64
				p.Handle(func(r *faultproxy.Request) faultproxy.Action {
					if !bytes.Contains(r.Data, []byte(of)) || cuts.Add(1) > 2 {
						return faultproxy.Pass
					}
					return action
				})
				again := func(key string, do func() error) {
					err := do()
					for ; err != nil && !driver.Gone(err); err = do() {
						unknown.Add(1)
						if errors.Is(err, driver.ErrRefused) || errors.Is(err, driver.ErrPermanent) {
							t.Errorf("%s: %v", key, err)
							return
						}
					}
				}
				many(func(_ int, key string) {
					for range 5 {
						c := claim(key)
						var ticket driver.Ticket
						again(key, func() (err error) {
							ticket, err = b.Enter(soon(t), c)
							return err
						})
						if !ticket.Granted {
							t.Errorf("%s is not granted", key)
						}
						again(key, func() error { return b.Leave(soon(t), ticket, driver.Exit{}) })
					}
				})
				if cuts.Load() < 2 || unknown.Load() == 0 {
					t.Errorf("%d batches were cut, and %d calls had no answer", cuts.Load(), unknown.Load())
				}
			}
		}
		p.Handle(nil)
		empty(t, b)
	})
}

// TestBatchOfLeavesLosesNoWaiter: of locks that are freed at one time, every other one has got a waiter since it was
// taken.
func TestBatchOfLeavesLosesNoWaiter(t *testing.T) {
	each(t, []kind{postgres, pgBouncer}, func(t *testing.T, s *store) {
		a, b := s.polling(t), s.backend(t)
		usesAll(t, a)
		var held, waiting [64]driver.Ticket
		many(func(i int, key string) { held[i] = hold(t, a, claim(key)) })
		many(func(i int, key string) {
			if i%2 == 0 {
				waiting[i] = wait(t, b, claim(key))
			}
		})
		many(func(i int, _ string) { well(t, "Leave", a.Leave(soon(t), held[i], driver.Exit{})) })
		many(func(i int, key string) {
			if i%2 == 0 {
				leave(t, b, granted(t, b, waiting[i]))
			}
			well(t, key, pair(b, soon(t), key))
		})
		empty(t, b)
	})
}
