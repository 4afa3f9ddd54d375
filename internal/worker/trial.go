package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Trial puts a store through what can happen to processes. The lines that it uses are empty
// before and afterwards.
type Trial[Store any] struct {
	Store   Store          // for the workers
	Backend driver.Backend // of this process
	Lease   time.Duration  // of the workers' claims
	Late    time.Duration  // how long after a lease its claim may still be there
}

func (x Trial[Store]) start(t testing.TB, do Job) *Process {
	t.Helper()
	return Start(t, Order[Store]{Do: do, Store: x.Store, Key: "k", TTL: x.Lease})
}

// NeverOverlap has workers count up a number that nothing but the lock guards, each so often.
func (x Trial[Store]) NeverOverlap(t *testing.T, workers, holds int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "count")
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var ps []*Process
	for range workers {
		o := Order[Store]{Do: Count, Store: x.Store, Key: "k", TTL: time.Minute, N: holds, File: file}
		ps = append(ps, Start(t, o))
	}
	began := time.Now()
	for _, p := range ps {
		p.Succeeds()
	}
	t.Logf("%d holds by %d processes in %v", workers*holds, workers, time.Since(began))
	text, err := os.ReadFile(file)
	log, err2 := os.ReadFile(file + ".log")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if string(text) != fmt.Sprint(workers*holds) {
		t.Errorf("the guarded counter is at %s; want %d: two processes held the lock at once", text, workers*holds)
	}
	last := int64(0)
	for line := range strings.FieldsSeq(string(log)) {
		token, err := strconv.ParseInt(line, 10, 64)
		if err != nil || token <= last {
			t.Fatalf("token %s was granted after %d", line, last)
		}
		last = token
	}
}

// KilledHolder sees that the lock of a killed process is free once its lease is over.
func (x Trial[Store]) KilledHolder(t *testing.T) {
	t.Helper()
	p := x.start(t, Hold)
	p.Held()
	next := x.wait(t)
	p.Kill()
	killed := time.Now()
	next = x.granted(t, next)
	x.inTime(t, killed, "the lock of a killed holder was free after")
	x.leave(t, next)
}

// KilledWaiter sees that a killed waiter delays the line no longer than its own lease.
func (x Trial[Store]) KilledWaiter(t *testing.T) {
	t.Helper()
	holder := x.granted(t, x.enter(t, "k"))
	p := x.start(t, Hold)
	p.Hears("waits")
	behind := x.wait(t)
	p.Kill()
	killed := time.Now()
	x.leave(t, holder)
	behind = x.granted(t, behind)
	x.inTime(t, killed, "a killed waiter held up the line for")
	x.leave(t, behind)
}

// KilledAtAnyMoment kills workers at random while others work. Afterwards each of their locks
// is free once a lease is over; intact, unless nil, is called before that.
func (x Trial[Store]) KilledAtAnyMoment(t *testing.T, kills int, intact func()) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	ps := []*Process{x.start(t, Storm), x.start(t, Storm), x.start(t, Storm)}
	for _, p := range ps {
		p.Hears("works")
	}
	for range kills {
		time.Sleep(time.Duration(rng.IntN(60_000)) * time.Microsecond)
		i := rng.IntN(len(ps))
		ps[i].Kill()
		ps[i] = x.start(t, Storm)
		ps[i].Hears("works")
	}
	for _, p := range ps {
		p.Kill()
	}
	if intact != nil {
		intact()
	}
	// A server may get to the last request of a dead process only now: its claim has a lease too.
	// What counts is when a look was sent, for a busy machine answers late.
	killed := time.Now()
	for sent := killed; x.anybody(t); sent = time.Now() {
		if late := sent.Sub(killed); late > x.Lease+x.Late {
			t.Errorf("a look %v after the last kill shows a lock of a dead process; want none after %v",
				late, x.Lease+x.Late)
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	for i := range 3 {
		x.leave(t, x.granted(t, x.enter(t, fmt.Sprint("k", i))))
	}
}

// StoppedHolder stops a holder for longer than its lease, with two signals. It learns from its
// first answer that its claim is gone, and it does not end that of its successor.
func (x Trial[Store]) StoppedHolder(t *testing.T, stop, resume os.Signal) {
	t.Helper()
	p := x.start(t, Renew)
	old, _ := p.Held()
	next := x.wait(t)
	p.Signal(stop)
	next = x.granted(t, next)
	if next.Token <= old {
		t.Errorf("the successor of a stopped holder has token %d; want one above %d", next.Token, old)
	}
	p.Signal(resume)
	p.Hears("renew gone")
	p.Hears("left gone")
	p.Succeeds()
	if err := x.Backend.Renew(soon(t), []driver.Ticket{next})[0]; err != nil {
		t.Errorf("the successor lost its lock to the one that came back: %v", err)
	}
	x.leave(t, next)
}

func (x Trial[Store]) inTime(t *testing.T, since time.Time, what string) {
	t.Helper()
	if took := time.Since(since); took > x.Lease+x.Late {
		t.Errorf("%s %v; want at most %v", what, took, x.Lease+x.Late)
	}
}

// soon ends with the test, or when a call should long be over.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func (x Trial[Store]) enter(t testing.TB, key string) driver.Ticket {
	t.Helper()
	k, err := x.Backend.Enter(soon(t), claim(key, time.Minute))
	if err != nil {
		t.Fatalf("Enter: %v", err)
	}
	return k
}

// wait enters a claim that has to wait.
func (x Trial[Store]) wait(t testing.TB) driver.Ticket {
	t.Helper()
	k := x.enter(t, "k")
	if k.Granted {
		t.Fatal("a claim was granted while another held the lock")
	}
	return k
}

// granted waits for the grant of a claim.
func (x Trial[Store]) granted(t testing.TB, k driver.Ticket) driver.Ticket {
	t.Helper()
	ctx := soon(t)
	for !k.Granted {
		var err error
		if k, err = x.Backend.Await(ctx, k); err != nil {
			t.Fatalf("Await: %v", err)
		}
	}
	return k
}

// anybody reports whether a claim is in line.
func (x Trial[Store]) anybody(t testing.TB) bool {
	t.Helper()
	for _, err := range x.Backend.Lines(soon(t), "") {
		if err != nil {
			t.Fatalf("Lines: %v", err)
		}
		return true
	}
	return false
}

func (x Trial[Store]) leave(t testing.TB, k driver.Ticket) {
	t.Helper()
	if err := x.Backend.Leave(soon(t), k, driver.Exit{}); err != nil {
		t.Fatalf("Leave: %v", err)
	}
}
