package swaplock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/swaplock"
)

var errCut = errors.New("the connection was cut")

// cut cuts some connections before a request has arrived, and some before its answer has.
type cut struct{ losing }

func cutting(do func() error) error {
	switch rand.IntN(30) {
	case 0:
		return errCut
	case 1:
		if err := do(); err != nil {
			return err
		}
		return errCut
	}
	return do()
}

func (s cut) Read(ctx context.Context, key string, n int) (st swaplock.State, err error) {
	err = cutting(func() (err error) { st, err = s.losing.Read(ctx, key, n); return err })
	return st, err
}

func (s cut) Swap(ctx context.Context, key string, c *swaplock.Change) (version string, err error) {
	err = cutting(func() (err error) { version, err = s.losing.Swap(ctx, key, c); return err })
	return version, err
}

func (s cut) Arrive(ctx context.Context, key string, a *swaplock.Arrival) (p *swaplock.Place, err error) {
	err = cutting(func() (err error) { p, err = s.losing.Arrive(ctx, key, a); return err })
	return p, err
}

func (s cut) Message(ctx context.Context, key string, m []byte) (added bool, err error) {
	err = cutting(func() (err error) { added, err = s.losing.Message(ctx, key, m); return err })
	return added, err
}

func (s cut) Renew(ctx context.Context, ls []swaplock.Lease) (alive []bool, err error) {
	err = cutting(func() (err error) { alive, err = s.losing.Renew(ctx, ls); return err })
	return alive, err
}

func (s cut) Purge(ctx context.Context, key string, ids []string) error {
	return cutting(func() error { return s.losing.Purge(ctx, key, ids) })
}

// crowd takes and releases a few locks many times, and keeps a history.
type crowd struct {
	t       *testing.T
	start   time.Time
	granted atomic.Int64

	mu     sync.Mutex
	events []history.Event
}

func (c *crowd) note(op history.Op, claim *driver.Claim, token int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, history.Event{
		At: time.Since(c.start), Op: op, Key: claim.Key, Claim: claim.ID, Process: claim.ID, Token: token,
	})
}

// judge reports what was wrong. A wake-up may be lost with a connection, but not for long.
func (c *crowd) judge() {
	found, err := history.Check(c.events, history.Options{Stuck: 2 * time.Minute, Wake: 10 * time.Second})
	if err != nil {
		c.t.Error(err)
	}
	for _, v := range found {
		c.t.Error(v)
	}
}

// again repeats a request while the connection is cut.
func again(do func() error) error {
	for {
		if err := do(); !errors.Is(err, errCut) {
			return err
		}
		runtime.Gosched()
	}
}

func (c *crowd) turn(b *swaplock.Backend, n int) {
	ctx := context.Background()
	wish := steps.TTL(steps.Claim(fmt.Sprint("key ", n)), time.Minute)
	c.note(history.Enter, &wish, 0)
	var t driver.Ticket
	err := again(func() (err error) { t, err = b.Enter(ctx, wish); return err })
	for err == nil && !t.Granted {
		if rand.IntN(4) == 0 {
			err = again(func() error { return b.Renew(ctx, []driver.Ticket{t})[0] })
		}
		if err == nil {
			got := t
			err = again(func() (err error) { got, err = b.Await(ctx, t); return err })
			t = got
		}
	}
	if err != nil {
		c.t.Errorf("a claim with a lease of a minute: %v", err)
		return
	}
	c.note(history.Believe, &wish, t.Token)
	c.granted.Add(1)
	runtime.Gosched()
	c.note(history.Release, &wish, t.Token)
	if err := again(func() error { return b.Leave(ctx, t, driver.Exit{Tombstone: true}) }); err != nil && !driver.Gone(err) {
		c.t.Errorf("Leave: %v", err)
	}
	c.note(history.Left, &wish, t.Token)
}

// play has two processes of n goroutines take three locks by turns.
func (c *crowd) play(store swaplock.Store, n, turns int) {
	var all sync.WaitGroup
	for range 2 {
		b := swaplock.New(store)
		defer b.Close()
		for range n {
			all.Go(func() {
				for i := range turns {
					c.turn(b, i%3)
				}
			})
		}
	}
	all.Wait()
}

func TestCutConnectionsLetNoTwoIn(t *testing.T) {
	for _, arrive := range []bool{false, true} {
		t.Run(fmt.Sprint("Arrive=", arrive), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { letNoTwoIn(t, arrive, 8, 12) })
		})
	}
}

func letNoTwoIn(t *testing.T, arrive bool, goroutines, turns int) {
	toy := newToy()
	var store swaplock.Store = cut{losing{toy}}
	if !arrive {
		store = onlySwaps{store}
	}
	c := &crowd{t: t, start: time.Now()}
	c.play(store, goroutines, turns)
	c.judge()
	steps.Same(t, "grants", c.granted.Load(), int64(2*goroutines*turns))
	for l, err := range swaplock.New(toy).Lines(t.Context(), "") {
		t.Errorf("somebody is left: %+v, error %v", l, err)
	}
	steps.Same(t, "records are left", toy.records(), 0)
}

// A waiter with a record is taken out; the swap is lost, because the holder leaves just before, and by the next attempt
// the claim is granted.
func TestLeaveThatLosesItsSwapKeepsAGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &failing{toy: newToy()}
		a, b := opened(t, s), opened(t, s.toy)
		holder := entered(t, b, exclusive("holder", time.Minute))
		waiter := entered(t, a, exclusive("waiter", time.Minute))
		steps.Must(t, renewed(t, a, waiter))
		s.before = func() error { return b.Leave(context.Background(), holder, driver.Exit{}) }
		err := a.Leave(t.Context(), waiter, driver.Exit{IfWaiting: true})
		l, _ := b.Line(t.Context(), "k")
		if errors.Is(err, driver.ErrGranted) != (len(l.Claims) == 1) || err != nil && !errors.Is(err, driver.ErrGranted) {
			t.Errorf("Leave answered %v, and the line is %+v", err, l)
		}
		steps.Same(t, "records", s.records(), len(l.Claims))
	})
}

func TestNewerFormatIsRefusedByName(t *testing.T) {
	store := newToy()
	doc := `{"format":2,"claims":[]}`
	if ok, err := store.Swap(t.Context(), "k", &swaplock.Change{Content: swaplock.Content{Document: []byte(doc)}}); ok == "" || err != nil {
		t.Fatal(ok, err)
	}
	_, err := opened(t, store).Enter(t.Context(), exclusive("id", time.Minute))
	if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "format 2") {
		t.Errorf("Enter answered %v", err)
	}
	st, _ := store.Read(t.Context(), "k", -1)
	steps.Same(t, "the document", string(st.Document), doc)
}

// halting loses each swap. It refuses the messages of one half of all claims, and the answers to the others are cut.
type halting struct{ notes }

func (halting) Swap(ctx context.Context, _ string, _ *swaplock.Change) (string, error) {
	return "", ctx.Err()
}

func (s halting) Message(ctx context.Context, key string, m []byte) (bool, error) {
	if bytes.Contains(m, []byte("refused")) {
		return false, driver.Refused(errors.New("no room"))
	}
	if _, err := s.notes.Message(ctx, key, m); err != nil {
		return false, err
	}
	return false, errCut
}

// The messages of several claims go at once. Nobody whose own may have been added hears that nothing has happened:
// another process does what it says.
func TestRefusalOfAnothersMessageIsNotOnesOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newToy()
		entered(t, opened(t, s), exclusive("holder", time.Hour))
		b := opened(t, halting{notes{newDistant(s, time.Millisecond), s, time.Millisecond}})
		var all sync.WaitGroup
		for i := range 10 {
			id := []string{"cut", "refused"}[i%2]
			all.Go(func() {
				_, err := b.Enter(t.Context(), exclusive(fmt.Sprint(id, i), time.Hour))
				if err == nil || id == "cut" && errors.Is(err, driver.ErrRefused) {
					t.Errorf("Enter of %s%d answered %v", id, i, err)
				}
			})
		}
		all.Wait()
	})
}
