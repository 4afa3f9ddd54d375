package memlock

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/limit"
	"github.com/fencelock/fencelock/internal/line"
)

//verify:fault Memory | the holder is killed | n/a: one process
//verify:fault Memory | the first waiter is killed | n/a: one process
//verify:fault Memory | the holder is stopped past its lease | n/a: one process
//verify:fault Memory | the store is restarted | n/a: it forgets with the process

func wish(key string, id int) driver.Claim {
	return driver.Claim{
		Key: key, ID: fmt.Sprintf("%032d", id), Owner: "test",
		Capacity: driver.RW, Weight: driver.RW, TTL: 30 * time.Second, Span: 1,
	}
}

// pass lets virtual time go by.
func pass(d time.Duration) { <-time.After(d) }

func TestTokensAreTheClockOrOneMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		c := wish("k", 1)
		c.Span = 1000
		first := steps.Enter(t, s, c)
		steps.Same(t, "the first token", first.Token, time.Now().UnixMicro())
		steps.Leave(t, s, first)
		second := steps.Enter(t, s, wish("k", 2))
		steps.Same(t, "the next token", second.Token, first.Token+1000)
		steps.Leave(t, s, second)
		pass(time.Second)
		steps.Same(t, "a token a second later", steps.Enter(t, s, wish("k", 3)).Token, time.Now().UnixMicro())
	})
}

//verify:fault Memory | data lost
func TestFlushForgetsEverythingAndNobodyIsResurrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		marked := steps.Enter(t, s, wish("marked", 1))
		steps.Leave(t, s, marked, driver.Exit{Mark: "done"})
		if err := s.Leave(t.Context(), driver.Ticket{Claim: wish("gone", 2)}, driver.Exit{Tombstone: true}); !driver.Gone(err) {
			t.Fatal(err)
		}
		holder, waits := steps.Enter(t, s, wish("k", 3)), steps.Enter(t, s, wish("k", 4))
		pass(time.Second)
		answer, start := make(chan error, 1), time.Now()
		go func() { answer <- steps.ErrOf(s.Await(t.Context(), waits)) }()
		synctest.Wait()

		s.Flush()
		steps.Gone(t, "Await of a claim that is flushed", <-answer)
		steps.Same(t, "Await returned after", time.Since(start), 0)
		for i, err := range s.Renew(t.Context(), []driver.Ticket{holder, waits}) {
			steps.Gone(t, fmt.Sprint("Renew after Flush of claim ", i), err)
		}
		for l := range s.Lines(t.Context(), "") {
			t.Errorf("a line is left after Flush: %+v", l)
		}
		if l, err := s.Line(t.Context(), "marked"); err != nil || l.Mark != "" || l.Last != 0 {
			t.Errorf("a line is remembered after Flush: %+v, error %v", l, err)
		}
		steps.Enter(t, s, wish("gone", 2))
		if next := steps.Enter(t, s, wish("k", 5)); !next.Granted || next.Token <= waits.Token {
			t.Errorf("the next holder has token %d, granted %v; want one above %d", next.Token, next.Granted, waits.Token)
		}
	})
}

func TestManyAwaitsOfOneClaimAllReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		holder, next := steps.Enter(t, s, wish("k", 1)), steps.Enter(t, s, wish("k", 2))
		const n = 5
		answers := make(chan bool, n)
		for range n {
			go func() {
				now, err := s.Await(t.Context(), next)
				answers <- err == nil && now.Granted
			}()
		}
		synctest.Wait()
		start := time.Now()
		steps.Leave(t, s, holder)
		for range n {
			if !<-answers {
				t.Errorf("an Await of the granted claim did not say so")
			}
		}
		steps.Same(t, "the last Await returned after", time.Since(start), 0)
	})
}

func TestMarkIsAsOfTheGrant(t *testing.T) {
	s := New()
	reader := func(id int) driver.Claim {
		c := wish("k", id)
		c.Weight = 1
		return c
	}
	first, second := steps.Enter(t, s, reader(1)), steps.Enter(t, s, reader(2))
	steps.Leave(t, s, first, driver.Exit{Mark: "later"})
	steps.Same(t, "a reader that was granted before the mark was written finds", steps.Enter(t, s, second.Claim).Mark, "")
	steps.Same(t, "a reader that was granted after finds", steps.Enter(t, s, reader(3)).Mark, "later")
}

func TestClaimsThatTheCoreNeverSendsAreRefused(t *testing.T) {
	s := New()
	for what, spoil := range map[string]func(c *driver.Claim){
		"no key":          func(c *driver.Claim) { c.Key = "" },
		"long key":        func(c *driver.Claim) { c.Key = string(make([]byte, limit.Key+1)) },
		"no id":           func(c *driver.Claim) { c.ID = "" },
		"weight 0":        func(c *driver.Claim) { c.Weight = 0 },
		"weight above":    func(c *driver.Claim) { c.Capacity = 3 },
		"capacity above":  func(c *driver.Claim) { c.Capacity = driver.RW + 1 },
		"no ttl":          func(c *driver.Claim) { c.TTL = 0 },
		"ttl above":       func(c *driver.Claim) { c.TTL = line.MaxTTL + 1 },
		"no span":         func(c *driver.Claim) { c.Span = 0 },
		"span above":      func(c *driver.Claim) { c.Span = limit.Span + 1 },
		"ttl below floor": func(c *driver.Claim) { c.TTL = line.MinTTL - 1 },
	} {
		c := wish("k", 1)
		spoil(&c)
		_, err := s.Enter(t.Context(), c)
		steps.Is(t, what+": Enter", err, driver.ErrPermanent)
	}
	steps.Same(t, "lines of refused claims", len(s.lines), 0)
}

func TestIdleLinesAreForgottenAfterADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		const n = 1000
		for i := range n {
			ticket := steps.Enter(t, s, wish(fmt.Sprint("old ", i), i))
			if i%4 == 0 {
				continue // crashed
			}
			steps.Leave(t, s, ticket)
		}
		steps.Leave(t, s, steps.Enter(t, s, wish("marked", 1)), driver.Exit{Mark: "kept"})
		held := steps.Enter(t, s, wish("held", 2))
		held.TTL = 48 * time.Hour
		steps.Must(t, s.Renew(t.Context(), []driver.Ticket{held})[0])

		pass(23 * time.Hour)
		for i := range n {
			steps.Leave(t, s, steps.Enter(t, s, wish(fmt.Sprint("new ", i), i)))
		}
		steps.Same(t, "lines are remembered before a day is over", len(s.lines), 2*n+2)

		pass(2 * time.Hour)
		for i := range 2 * n {
			steps.Leave(t, s, steps.Enter(t, s, wish(fmt.Sprint("newer ", i), i)))
		}
		if len(s.lines) > 3*n+2 {
			t.Errorf("%d lines are remembered; want at most %d: those of a day ago are idle", len(s.lines), 3*n+2)
		}
		for i := range n {
			if s.lines[fmt.Sprint("old ", i)] != nil {
				t.Fatalf("line %d of a day ago is still remembered", i)
			}
		}
		if l, _ := s.Line(t.Context(), "marked"); l.Mark != "kept" {
			t.Errorf("the mark is gone: %+v", l)
		}
		steps.InLine(t, "the held lock", s, "held", 1)
	})
}

func TestTombstonesAreForgottenWhenTheyAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		const n = 1000
		for i := range 10 * n {
			c := wish("k", i)
			c.TTL = time.Duration(1+i%n) * time.Millisecond
			s.Leave(t.Context(), driver.Ticket{Claim: c}, driver.Exit{Tombstone: true})
			pass(time.Millisecond)
			// At most n can be live: each lasts for at most n steps of the clock.
			if kept := len(s.lines["k"].Tombstones); kept > 2*n {
				t.Fatalf("%d tombstones are kept; at most %d are live", kept, n)
			}
		}
		c := wish("k", 10*n-1)
		steps.Gone(t, "Enter of a claim with a live tombstone", steps.ErrOf(s.Enter(t.Context(), c)))
	})
}

func TestTombstoneIsProlongedAndNeverShortened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		put := func(id int, ttl time.Duration) {
			c := wish("k", id)
			c.TTL = ttl
			s.Leave(t.Context(), driver.Ticket{Claim: c}, driver.Exit{Tombstone: true})
		}
		put(1, 10*time.Second)
		put(2, 20*time.Second)
		put(1, 100*time.Second)
		put(1, time.Second) // shortens nothing
		pass(30 * time.Second)
		steps.Gone(t, "Enter of a claim with a prolonged tombstone", steps.ErrOf(s.Enter(t.Context(), wish("k", 1))))
		steps.Well(t, "Enter of a claim whose tombstone is over", steps.ErrOf(s.Enter(t.Context(), wish("k", 2))))
	})
}

func TestFreeLockCostsFewAllocations(t *testing.T) {
	s, ctx, c := New(), context.Background(), wish("k", 1)
	allocs := testing.AllocsPerRun(1000, func() {
		ticket, err := s.Enter(ctx, c)
		steps.Must(t, err)
		steps.Must(t, s.Leave(ctx, ticket, driver.Exit{}))
	})
	if allocs > 3 {
		t.Errorf("Enter and Leave of a free lock allocate %v times; want at most 3", allocs)
	}
}

func TestAlarmMayCallTheStore(t *testing.T) {
	s := New()
	heard := ""
	defer s.Alarm(func(id string, _ driver.GoneError) {
		heard = id
		s.Enter(context.Background(), wish("other", 9))
	})()
	holder := steps.Enter(t, s, wish("k", 1))
	steps.Must(t, s.Break(t.Context(), "k", holder.Token, driver.Break{}))
	steps.Same(t, "the alarm was of", heard, holder.ID)
}

// BenchmarkFreeLock is the price of a lock that nobody else wants.
func BenchmarkFreeLock(b *testing.B) {
	s, ctx, c := New(), context.Background(), wish("k", 1)
	b.ReportAllocs()
	for b.Loop() {
		t, err := s.Enter(ctx, c)
		if err != nil || !t.Granted {
			b.Fatal(t, err)
		}
		steps.Must(b, s.Leave(ctx, t, driver.Exit{}))
	}
}

// BenchmarkLongLine hands a lock on with 10 000 others in line: the first
// leaves, and a new one joins behind.
func BenchmarkLongLine(b *testing.B) {
	s, ctx := New(), context.Background()
	const waiters = 10000
	var line []driver.Ticket
	join := func(id int) {
		t, err := s.Enter(ctx, wish("k", id))
		steps.Must(b, err)
		line = append(line, t)
	}
	for i := range waiters {
		join(i)
	}
	next := waiters
	b.ReportAllocs()
	for b.Loop() {
		steps.Must(b, s.Leave(ctx, line[0], driver.Exit{}))
		line = line[1:]
		join(next)
		next++
	}
}
