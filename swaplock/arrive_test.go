package swaplock_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/swaplock"
)

// distant is a store that is far away, and counts the requests that it gets.
type distant struct {
	*toy
	way      time.Duration // one way
	requests *atomic.Int64
}

func newDistant(s *toy, way time.Duration) distant { return distant{s, way, new(atomic.Int64)} }

// travel returns when a request has arrived, and its result when the answer has.
func (s distant) travel() (back func()) {
	s.requests.Add(1)
	time.Sleep(s.way)
	return func() { time.Sleep(s.way) }
}

func (s distant) Read(ctx context.Context, key string, n int) (swaplock.State, error) {
	defer s.travel()()
	return s.toy.Read(ctx, key, n)
}

func (s distant) Swap(ctx context.Context, key string, c *swaplock.Change) (string, error) {
	defer s.travel()()
	return s.toy.Swap(ctx, key, c)
}

func (s distant) Arrive(ctx context.Context, key string, a *swaplock.Arrival) (*swaplock.Place, error) {
	defer s.travel()()
	return s.toy.Arrive(ctx, key, a)
}

func (s distant) Message(ctx context.Context, key string, m []byte) (bool, error) {
	defer s.travel()()
	return s.toy.Message(ctx, key, m)
}

func (s distant) Renew(ctx context.Context, ls []swaplock.Lease) ([]bool, error) {
	defer s.travel()()
	return s.toy.Renew(ctx, ls)
}

func (s distant) Watch(
	ctx context.Context, waiting func() map[string]string, hear func(string, []swaplock.News),
) error {
	return s.toy.Watch(ctx, waiting, func(key string, news []swaplock.News) {
		time.AfterFunc(s.way, func() { hear(key, news) })
	})
}

func TestFreeLockCostsTwoRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDistant(newToy(), 0)
		b := opened(t, s)
		for i, e := range []driver.Exit{{}, {Mark: "done"}, {}} {
			s.requests.Store(0)
			ticket := entered(t, b, exclusive(fmt.Sprint("id", i), time.Minute))
			steps.Must(t, renewed(t, b, ticket))
			left(t, b, ticket, e)
			steps.Same(t, fmt.Sprintf("requests of Enter, Renew and Leave with %+v", e), s.requests.Load(), 3)
		}
		if l, _ := b.Line(t.Context(), "k"); len(l.Claims) != 0 || l.Mark != "done" {
			t.Errorf("the line is %+v", l)
		}
	})
}

// hinted notes what arrivals guess of the lock.
type hinted struct {
	*toy
	guesses []string
}

func (s *hinted) Arrive(ctx context.Context, key string, a *swaplock.Arrival) (*swaplock.Place, error) {
	s.guesses = append(s.guesses, fmt.Sprintf("free %v unseen %v", a.Free, a.Unseen))
	return s.toy.Arrive(ctx, key, a)
}

// A store may have a short request for a lock that is free. It is worth a try once for each time that this process has
// left the line empty, as another one may be there; and where the process knows nothing of the line.
func TestLockThatMayBeFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hinted{toy: newToy()}
		b, other := opened(t, s), opened(t, s.toy)
		for i := range 3 {
			left(t, b, entered(t, b, exclusive(fmt.Sprint("id", i), time.Minute)))
		}
		holder := entered(t, other, exclusive("other", time.Minute))
		first, second := entered(t, b, exclusive("first", time.Minute)), entered(t, b, exclusive("second", time.Minute))
		left(t, b, second)
		left(t, b, first)
		third := entered(t, b, exclusive("third", time.Minute)) // the other one is in line still, as it was
		left(t, other, holder)
		left(t, b, third)
		steps.Hold(t, other, exclusive("last", time.Minute)) // all others have left
		free, taken := "free true unseen false", "free false unseen false"
		want := []string{"free false unseen true", free, free, free, taken, taken}
		if !slices.Equal(s.guesses, want) {
			t.Errorf("the guesses are %q; want %q", s.guesses, want)
		}
	})
}

// informing tells of a swap with the line, as the SQL stores do.
type informing struct{ distant }

func (s informing) Watch(
	ctx context.Context, waiting func() map[string]string, hear func(string, []swaplock.News),
) error {
	return telling{toy: s.toy}.Watch(ctx, waiting, hear)
}

// Two processes pass a lock on, which they hear of without a request. Each joins while the other holds it: the line that
// the holder may have heard of with its grant is old by then, so a swap of that would be lost.
func TestHandOverCostsThreeRequests(t *testing.T) {
	for _, informs := range []bool{false, true} {
		t.Run(fmt.Sprint("Informs=", informs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newDistant(newToy(), 2*time.Millisecond)
				var store swaplock.Store = s
				if informs {
					store = informing{s}
				}
				mine, other := opened(t, store), opened(t, store)
				holder := entered(t, mine, exclusive("first", time.Hour))
				const turns = 20
				for i := range 4 + turns {
					if i == 4 { // both hear
						s.requests.Store(0)
					}
					waiter := entered(t, other, exclusive(fmt.Sprint("waiter", i), time.Hour))
					left(t, mine, holder)
					holder = awaited(t, other, waiter)
					mine, other = other, mine
				}
				steps.Same(t, "requests of hand-overs: an arrival, a read and a swap each", s.requests.Load(), 3*turns)
			})
		})
	}
}

// News is not a secret, so it must not be enough to make a waiter believe in a grant.
func TestNewsOfAnotherClaimGrantsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newToy()
		b := opened(t, s)
		entered(t, b, exclusive("holder", time.Hour))
		waiter := entered(t, b, exclusive("waiter", time.Hour))
		steps.Must(t, steps.ErrOf(b.Await(t.Context(), waiter)))
		s.tell("k", []swaplock.News{{Token: waiter.Token}, {Token: waiter.Token, Grant: "0123456789abcdef"}})
		if got, err := b.Await(t.Context(), waiter); got.Granted || err != nil {
			t.Errorf("Await returned %+v, error %v", got, err)
		}
	})
}

// One process is far from the store, and three are near. All want one lock all the time. The far one gets
// half of what each near one gets, or half of what it gets when it is alone.
func TestFarClientGetsItsShare(t *testing.T) {
	for _, tt := range []struct {
		what             string
		capacity, weight int64
		n                int
	}{
		{"mutex", driver.RW, driver.RW, 4}, {"semaphore", 3, 1, 4}, {"readers", driver.RW, 1, 4},
		{"crowd", driver.RW, driver.RW, 32},
	} {
		for _, messages := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.what, "/messages=", messages), func(t *testing.T) {
				c := exclusive("", time.Minute)
				c.Capacity, c.Weight = tt.capacity, tt.weight
				var alone, far, near int64
				synctest.Test(t, func(t *testing.T) { alone, _ = share(t, c, tt.n, 0, messages) })
				synctest.Test(t, func(t *testing.T) { far, near = share(t, c, tt.n, 3, messages) })
				t.Logf("%d grants far away, %d near; %d far away and alone", far, near, alone)
				if 2*far < min(near, alone) {
					t.Errorf("%d grants far away, and %d near, or %d far away and alone", far, near, alone)
				}
			})
		}
	}
}

// share has n goroutines of each process take c for some seconds, and counts their grants in the
// process far away, and in each near one. The store has messages, or arrivals.
func share(t *testing.T, c driver.Claim, n, nearby int, messages bool) (far, near int64) {
	toy := newToy()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var backends []driver.Backend
	for i := range 1 + nearby {
		store := newDistant(toy, time.Millisecond)
		if i == 0 {
			store.way = 20 * time.Millisecond
		}
		b := swaplock.New(store)
		if messages {
			b = swaplock.New(notes{store, toy, store.way})
		}
		defer b.Close()
		backends = append(backends, b)
	}
	return steps.Share(ctx, t, c, n, backends...)
}

// A process gives its lock up. Its swap is lost, because another has broken the claim that would be
// granted, so the grant must not be heard.
func TestLostSwapTellsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &failing{toy: newToy()}
		a, b := opened(t, s), opened(t, s.toy)
		holder := entered(t, a, exclusive("holder", time.Hour))
		waiter := entered(t, a, exclusive("waiter", time.Hour))
		s.before = func() error { // of the line in which the holder was alone: it is lost anyhow
			s.before = func() error { return b.Break(context.Background(), "k", waiter.Token, driver.Break{Reason: "enough"}) }
			return nil
		}
		left(t, a, holder)
		steps.Gone(t, "Await of a broken claim", steps.ErrOf(a.Await(t.Context(), waiter)))
	})
}

// short wants a document of a few claims.
func short(t *testing.T, s *toy, when string) {
	t.Helper()
	if n := written(t, s); n > 16 {
		t.Fatalf("%s the document has %d claims", when, n)
	}
}

// written returns how many claims the document has.
func written(t *testing.T, s *toy) int {
	t.Helper()
	st, err := s.Read(t.Context(), "k", -1)
	var doc struct{ Claims []any }
	if err == nil && len(st.Document) > 0 {
		err = json.Unmarshal(st.Document, &doc)
	}
	if err != nil {
		t.Fatal(err)
	}
	return len(doc.Claims)
}

// come has n claims enter at once, and returns their tickets.
func come(t *testing.T, b driver.Backend, n int) []driver.Ticket {
	t.Helper()
	tickets := make([]driver.Ticket, n)
	var all sync.WaitGroup
	for i := range tickets {
		all.Go(func() {
			var err error
			tickets[i], err = b.Enter(t.Context(), exclusive(fmt.Sprint("come", i), time.Hour))
			steps.OK(t, err)
		})
	}
	all.Wait()
	slices.SortFunc(tickets, func(x, y driver.Ticket) int { return cmp.Compare(x.Token, y.Token) })
	return tickets
}

// A hundred jobs of one process are started by the same clock. They do not enter the line one by one, and are granted
// in the order of their tokens; what the document has is no longer than a crowd.
func TestCrowdEntersTogether(t *testing.T) {
	for _, n := range []int{100, 400} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newDistant(newToy(), time.Millisecond)
				b := opened(t, s)
				holder := entered(t, b, exclusive("holder", time.Hour))
				s.requests.Store(0)
				line := come(t, b, n)
				if got := s.requests.Load(); n == 100 && got > 20 {
					t.Errorf("%d claims cost %d requests; want 8 of their own, and a step of the others", n, got)
				}
				steps.InLine(t, "all have come", b, "k", 1+n)
				if got := written(t, s.toy); got > 300 {
					t.Errorf("the document has %d claims; want about 256", got)
				}
				left(t, b, holder)
				for i, ticket := range line {
					if ticket = awaited(t, b, ticket); i > 0 && ticket.Token <= line[i-1].Token {
						t.Fatalf("claim %d has token %d, and the one before it %d", i, ticket.Token, line[i-1].Token)
					}
					left(t, b, ticket)
				}
			})
		})
	}
}

// beaten loses every swap, as if another process had written first.
type beaten struct{ *toy }

func (beaten) Swap(ctx context.Context, _ string, _ *swaplock.Change) (string, error) {
	return "", ctx.Err()
}

// Each swap of a crowd comes too late, as others swap all the time. Its claims arrive one by one then.
func TestCrowdWhoseSwapsAreLostArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newToy()
		entered(t, opened(t, s), exclusive("holder", time.Hour))
		line := come(t, opened(t, beaten{s}), 100)
		steps.InLine(t, "all have come", opened(t, s), "k", 1+len(line))
	})
}

// The last of a long line, whose arrival a step does not read, is found all the same.
func TestLastOfALongLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := opened(t, newToy())
		var line []driver.Ticket
		for i := range 100 {
			c := exclusive(fmt.Sprint("id", i), time.Minute)
			if i > 0 {
				c.Weight = 1
			}
			line = append(line, entered(t, b, c))
		}
		if got, err := b.Await(t.Context(), line[99]); err != nil || got.Granted {
			t.Errorf("Await returned %+v, error %v", got, err)
		}
		steps.OK(t, renewed(t, b, line[98]))
		steps.OK(t, b.Break(t.Context(), "k", line[97].Token, driver.Break{Reason: "enough"}))
		left(t, b, line[96])
		left(t, b, line[0])
		l, err := b.Line(t.Context(), "k")
		if err != nil || len(l.Claims) != 97 {
			t.Fatalf("%d claims, error %v", len(l.Claims), err)
		}
		for _, c := range l.Claims {
			if !c.Granted {
				t.Errorf("a reader waits for nobody: %+v", c)
			}
		}
	})
}

// A writer leaves, and more readers wait than a step reads at first.
func TestAllReadersOfALongLineAreGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := opened(t, newToy())
		writer := entered(t, b, exclusive("writer", time.Minute))
		var readers []driver.Ticket
		for i := range 100 {
			c := exclusive(fmt.Sprint("reader", i), time.Minute)
			c.Weight = 1
			readers = append(readers, entered(t, b, c))
		}
		left(t, b, writer)
		for _, r := range readers {
			if got, err := b.Await(t.Context(), r); err != nil || !got.Granted {
				t.Errorf("Await returned %+v, error %v", got, err)
			}
		}
	})
}

// An ID of other than letters and digits cannot arrive. Its claim joins behind the arrivals, also where
// the document has no room for them, and behind those that a step does not read at first.
func TestClaimThatCannotArriveJoinsBehindAll(t *testing.T) {
	for _, n := range []int{1, 20, 100} {
		b := opened(t, newToy())
		for i := range n {
			entered(t, b, exclusive(fmt.Sprint("first", i), time.Hour))
		}
		entered(t, b, exclusive("\xfe\"", time.Hour)) // all are in the document
		for i := range n {
			entered(t, b, exclusive(fmt.Sprint("then", i), time.Hour))
		}
		last := entered(t, b, exclusive("\xff\"", time.Hour))
		again := entered(t, b, exclusive("\xff\"", time.Hour))
		l, err := b.Line(t.Context(), "k")
		if err != nil || last.Token != again.Token || len(l.Claims) != 2*n+2 {
			t.Fatalf("%+v, then %+v, among %d claims, error %v", last, again, len(l.Claims), err)
		}
		for i, c := range l.Claims {
			if i > 0 && c.Token <= l.Claims[i-1].Token {
				t.Errorf("claim %d of %d has token %d, and the one before it %d", i, len(l.Claims), c.Token, l.Claims[i-1].Token)
			}
		}
	}
}

func TestWhatIsOldIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newToy()
		b := opened(t, s)
		put := func(id, key string, e *driver.Exit) {
			c := exclusive(id, time.Minute)
			c.Key = key
			if ticket := entered(t, b, c); e != nil {
				left(t, b, ticket, *e)
			}
		}
		put("a", "left", &driver.Exit{})
		put("b", "marked", &driver.Exit{Mark: "kept"})
		put("c", "kept out", &driver.Exit{Tombstone: true})
		put("d", "crashed", nil)
		put("e", "crashed", nil)
		for i := range 4 {
			time.Sleep(13 * time.Hour)
			put(fmt.Sprint("f", i), "used", &driver.Exit{})
			synctest.Wait()
		}
		steps.Same(t, "the keys of the store", fmt.Sprint(s.list()), "[marked used]")
	})
}

// dying loses its swaps, and dies when it has left a message.
type dying struct {
	*toy
	dead atomic.Bool
}

func (s *dying) Read(ctx context.Context, key string, n int) (swaplock.State, error) {
	if s.dead.Load() {
		return swaplock.State{}, errCut
	}
	return s.toy.Read(ctx, key, n)
}

func (s *dying) Swap(context.Context, string, *swaplock.Change) (string, error) { return "", nil }

func (s *dying) Message(ctx context.Context, key string, m []byte) (bool, error) {
	s.dead.Store(true)
	return s.toy.Message(ctx, key, m)
}

// The message of a client that has died is found by those who wait, long before a lease ends.
func TestMessageOfADeadClientIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &dying{toy: newToy()}
		a, b := opened(t, s), opened(t, s.toy)
		holder := entered(t, a, exclusive("holder", time.Hour))
		waiter := entered(t, b, exclusive("waiter", time.Hour))
		steps.Is(t, "Leave", a.Leave(t.Context(), holder, driver.Exit{}), errCut)
		start := time.Now()
		waiter = awaited(t, b, waiter)
		steps.TookAtMost(t, start, 2*time.Second)
		steps.Is(t, "Leave of a grant, if it waits", b.Leave(t.Context(), waiter, driver.Exit{IfWaiting: true}), driver.ErrGranted)
		left(t, b, waiter)
		steps.Rises(t, waiter.Token, steps.Hold(t, b, exclusive("next", time.Hour)).Token)
	})
}

// Those who wait in a long line for longer than a third of their lease renew it, which does not make the document of
// the line longer. All are granted in their order, and leave no record.
func TestLongLineThatHasWaitedHasAShortDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newToy()
		b := opened(t, s)
		const n = 300
		var line []driver.Ticket
		for i := range n {
			line = append(line, entered(t, b, exclusive(fmt.Sprint("id", i), time.Minute)))
		}
		for range 5 {
			time.Sleep(20 * time.Second)
			for _, err := range b.Renew(t.Context(), line) {
				steps.Must(t, err)
			}
			short(t, s, "after a renewal")
		}
		for range 50 {
			line = append(line, entered(t, b, exclusive(fmt.Sprint("later", len(line)), time.Minute)))
			short(t, s, "after an Enter")
		}
		left(t, b, line[n/2]) // gives up
		line = append(line[:n/2], line[n/2+1:]...)
		for i, ticket := range line {
			if ticket = awaited(t, b, ticket); i > 0 && ticket.Token <= line[i-1].Token {
				t.Fatalf("claim %d has token %d", i, ticket.Token)
			}
			left(t, b, ticket)
			short(t, s, fmt.Sprint("after ", i, " hand-overs"))
		}
		steps.InLine(t, "in the end", b, "k", 0)
		steps.Same(t, "records in the end", s.records(), 0)
	})
}

// A holder whose swap is lost leaves a message, which is behind a long line. Nobody reads that far, so the holder leaves
// by its next swap.
func TestMessageBehindALongLineLeavesNoGhost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &failing{toy: newToy()}
		a, b := opened(t, s), opened(t, s.toy)
		first := entered(t, b, exclusive("first", time.Hour))
		line := []driver.Ticket{entered(t, a, exclusive("holder", time.Hour))}
		for i := range 50 {
			line = append(line, entered(t, b, exclusive(fmt.Sprint("waiter", i), time.Hour)))
		}
		left(t, b, first)
		s.before = func() error { return renewed(t, b, line[9]) }
		left(t, a, awaited(t, a, line[0]))
		if l, err := b.Line(t.Context(), "k"); err != nil || len(l.Claims) != 50 || l.Claims[0].Token != line[1].Token {
			t.Fatalf("%d claims are in line, error %v", len(l.Claims), err)
		}
		for _, w := range line[1:] {
			left(t, b, awaited(t, b, w))
		}
		steps.InLine(t, "in the end", b, "k", 0)
	})
}

// A process that polls enters once more, and sees the version of the line after a swap that has granted another one of
// its claims. That one must hear of it at the next poll.
func TestEnterHidesNoGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newToy()
		a, b := opened(t, s), opened(t, polled{s})
		holder := entered(t, a, exclusive("holder", time.Hour))
		waiter := entered(t, b, exclusive("waiter", time.Hour))
		done := make(chan time.Time)
		go func() {
			awaited(t, b, waiter)
			done <- time.Now()
		}()
		time.Sleep(305 * time.Millisecond) // it has looked, and looks again after a second; no poll is at this moment
		left(t, a, holder)
		began := time.Now()
		last := entered(t, b, exclusive("last", time.Hour))
		if d := (<-done).Sub(began); d > 100*time.Millisecond {
			t.Errorf("the grant was heard after %v", d)
		}
		left(t, b, waiter)
		left(t, b, awaited(t, b, last))
	})
}

// A process takes and gives back a lock all the time, by the line as it has left it. Another one is five times as far
// away, so its swaps come too late each time, and the message that it leaves is read.
func TestLineThatIsKnownHidesNoMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		toy := newToy()
		near, far := newDistant(toy, time.Millisecond), newDistant(toy, 5*time.Millisecond)
		busy, other := opened(t, notes{near, toy, near.way}), opened(t, notes{far, toy, far.way})
		var stop atomic.Bool
		done := make(chan bool)
		go func() {
			defer close(done)
			for i := 0; !stop.Load(); i++ {
				left(t, busy, awaited(t, busy, entered(t, busy, exclusive(fmt.Sprint("busy", i), time.Minute))))
			}
		}()
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		left(t, other, awaited(t, other, entered(t, other, exclusive("other", time.Minute))))
		steps.TookAtMost(t, start, 200*time.Millisecond)
		stop.Store(true)
		<-done
	})
}
