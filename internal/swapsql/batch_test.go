package swapsql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/swaplock"
)

// fakeConns hold statements until they are answered.
type fakeConns struct{ sent chan *fakeStatement }

type fakeStatement struct {
	*Statement
	ctx    context.Context
	answer chan error
	rows   [][]any
}

func (c *fakeConns) Run(ctx context.Context, st *Statement) (int64, error) {
	f := &fakeStatement{Statement: st, ctx: ctx, answer: make(chan error)}
	c.sent <- f
	if err := <-f.answer; err != nil {
		return 0, err
	}
	return st.Take(&Result{Changed: int64(len(f.rows)), rows: f.rows})
}

// keys are those of a batch, or nil.
func (f *fakeStatement) keys() (keys []string) {
	if !strings.Contains(f.Text, "json_to_recordset") {
		return nil
	}
	var args []batchArg
	if err := json.Unmarshal([]byte(f.Args[0].(string)), &args); err != nil {
		panic(err)
	}
	for i, a := range args {
		if a.N != i {
			panic("the rows are not numbered")
		}
		keys = append(keys, a.Key)
	}
	return keys
}

// arrived is the row of a claim that has taken a lock.
func arrived() []any {
	return []any{int64(7), int64(7), int64(7), int64(9), "", "", int64(1), int64(40), int64(6)}
}

// took is the row of a batch for a call that has taken a lock.
func took(n int64) []any { return []any{n, int64(7)} }

// outcome holds the results of a call.
type outcome struct {
	p   *swaplock.Place
	err error
}

// batchTest is a store of which some calls are under way.
type batchTest struct {
	t     *testing.T
	conns *fakeConns
	s     *Store
	alone []*fakeStatement
}

func newBatchTest(t *testing.T) *batchTest {
	x := &batchTest{t: t, conns: &fakeConns{make(chan *fakeStatement, 100)}}
	x.s = New(x.conns, Postgres, Options{})
	for i := range manyUnder {
		x.arrive(t.Context(), fmt.Sprint("first", i))
		synctest.Wait()
		st := x.next()
		if st.keys() != nil {
			t.Fatalf("call %d is sent in a batch", i)
		}
		x.alone = append(x.alone, st)
	}
	return x
}

// end has the calls return that are under way.
func (x *batchTest) end() {
	for _, st := range x.alone {
		st.rows = [][]any{{int64(7)}}
		st.answer <- nil
	}
	synctest.Wait()
	select {
	case st := <-x.conns.sent:
		x.t.Errorf("another statement is sent: %s", st.Text)
	default:
	}
}

func (x *batchTest) next() *fakeStatement {
	x.t.Helper()
	synctest.Wait()
	select {
	case st := <-x.conns.sent:
		return st
	default:
		x.t.Fatal("no statement is sent")
		return nil
	}
}

func (x *batchTest) arrive(ctx context.Context, key string) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		p, err := x.s.Arrive(ctx, key, &swaplock.Arrival{
			ID: "a", Claim: []byte("{}"), Span: 1, Capacity: 1, Waits: true, Free: true,
		})
		done <- outcome{p, err}
	}()
	synctest.Wait()
	return done
}

// batch is a call in each of two batches: the second one is the test's.
func (x *batchTest) batch(keys ...string) (st *fakeStatement, done []<-chan outcome) {
	x.t.Helper()
	lead := x.arrive(x.t.Context(), "lead")
	first := x.next()
	for _, key := range keys {
		done = append(done, x.arrive(x.t.Context(), key))
	}
	first.rows = [][]any{took(0)}
	first.answer <- nil
	if got := <-lead; got.err != nil || got.p == nil || !got.p.Granted || got.p.Token != 7 {
		x.t.Fatalf("a call in a batch returned %+v, %v", got.p, got.err)
	}
	return x.next(), done
}

func hexKeys(keys ...string) (all []string) {
	for _, key := range keys {
		all = append(all, fmt.Sprintf("%x", key))
	}
	return all
}

var errReset = errors.New("the connection was reset")

// batchesOf runs f in a bubble.
func batchesOf(t *testing.T, f func(t *testing.T, x *batchTest)) {
	synctest.Test(t, func(t *testing.T) {
		x := newBatchTest(t)
		f(t, x)
		x.end()
	})
}

func TestBatchWhatIsLeftOutIsSentAlone(t *testing.T) {
	batchesOf(t, func(t *testing.T, x *batchTest) {
		st, done := x.batch("k", "l", "k")
		if got := st.keys(); !slices.Equal(got, hexKeys("k", "l")) {
			t.Fatalf("the batch has %q", got)
		}
		st.rows = [][]any{took(1)} // another transaction has locked k
		st.answer <- nil
		if got := <-done[1]; got.p == nil || got.err != nil {
			t.Errorf("the call on l returned %v, %v", got.p, got.err)
		}
		for range 2 {
			st := x.next() // the call on k, and the batch of the other one on k
			if st.keys() == nil {
				st.rows = [][]any{arrived()}
			}
			st.answer <- nil
		}
		st = x.next()
		st.answer <- nil
		for _, n := range []int{0, 2} {
			steps.Well(t, n, (<-done[n]).err)
		}
	})
}

func TestBatchRefusedIsAskedAlone(t *testing.T) {
	batchesOf(t, func(t *testing.T, x *batchTest) {
		st, done := x.batch("k", "l")
		st.answer <- driver.Permanent(errors.New("a number is out of range"))
		for range done {
			st := x.next()
			if st.keys() != nil {
				t.Fatal("a batch again")
			}
			if st.Key == "l" {
				st.answer <- driver.Refused(errReset)
			} else {
				st.rows = [][]any{arrived()}
				st.answer <- nil
			}
		}
		if got := <-done[0]; got.p == nil || got.err != nil {
			t.Errorf("the call on k returned %v, %v", got.p, got.err)
		}
		if got := <-done[1]; !errors.Is(got.err, driver.ErrRefused) || !errors.Is(got.err, errReset) {
			t.Errorf("the call on l returned %v, %v", got.p, got.err)
		}
	})
}

func TestBatchCallerThatLeavesEndsNoOther(t *testing.T) {
	batchesOf(t, func(t *testing.T, x *batchTest) {
		lead := x.arrive(t.Context(), "lead")
		first := x.next()
		ctx, cancel := context.WithCancel(t.Context())
		gone, stays := x.arrive(ctx, "k"), x.arrive(t.Context(), "l")
		never, end := context.WithCancel(t.Context())
		before := x.arrive(never, "m")
		end()
		first.answer <- errReset
		<-lead
		st := x.next()
		if got := st.keys(); !slices.Equal(got, hexKeys("k", "l")) {
			t.Errorf("the batch has %q", got)
		}
		cancel()
		for _, d := range []<-chan outcome{gone, before} {
			if got := <-d; !errors.Is(got.err, context.Canceled) || got.p != nil {
				t.Errorf("a call whose caller has left returned %v, %v", got.p, got.err)
			}
		}
		time.Sleep(time.Minute) // virtual: the server is slow, and the caller that is left has time
		if st.ctx.Err() != nil {
			t.Error("the batch has ended before its last caller")
		}
		st.rows = [][]any{took(0), took(1)}
		st.answer <- nil
		if got := <-stays; got.p == nil || got.err != nil {
			t.Errorf("the other call returned %v, %v", got.p, got.err)
		}
	})
}

func TestBatchEndsWithItsLastCaller(t *testing.T) {
	batchesOf(t, func(t *testing.T, x *batchTest) {
		lead := x.arrive(t.Context(), "lead")
		first := x.next()
		ctx, cancel := context.WithCancel(t.Context())
		done := x.arrive(ctx, "k")
		first.answer <- errReset
		<-lead
		st := x.next()
		cancel()
		<-done
		synctest.Wait()
		if st.ctx.Err() == nil {
			t.Error("the batch goes on for nobody")
		}
		st.answer <- st.ctx.Err()
	})
}

// TestBatchOfLeavesThatWasSentAgain: a connection broke, and a line that the batch did not find as it was may have been
// left by the first try. Alone, a swap says so, too.
func TestBatchOfLeavesThatWasSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBatchTest(t)
		swap := func(key string) <-chan error {
			done := make(chan error, 1)
			go func() {
				v, err := x.s.Swap(t.Context(), key, &swaplock.Change{
					If: "5", Seen: ends{10}, IfLast: 4, Before: time.Now().Add(time.Hour), Arrivals: 1,
					Content: swaplock.Content{Last: 4},
				})
				if (v == "6") != (err == nil) {
					err = fmt.Errorf("a swap returned version %q, %v", v, err)
				}
				done <- err
			}()
			synctest.Wait()
			return done
		}
		lead := swap("lead")
		first := x.next()
		found, left := swap("k"), swap("l")
		first.rows = [][]any{{int64(0)}}
		first.answer <- nil
		steps.OK(t, <-lead)
		st := x.next()
		st.Resent, st.rows = true, [][]any{{int64(0)}}
		st.answer <- nil
		steps.OK(t, <-found)
		if err := <-left; err == nil || errors.Is(err, driver.ErrRefused) {
			t.Errorf("a swap of which nobody knows whether it was done returned %v", err)
		}
		x.end()
	})
}
