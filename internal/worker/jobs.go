package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Order is what a worker does with a backend on a Store.
type Order[Store any] struct {
	Do    Job
	Store Store
	Key   string
	TTL   time.Duration // if zero, the longest that the backend has
	N     int
	File  string // of Count; a log beside it gets the tokens
}

// Job is something that a worker does. It says "waits TOKEN" when a claim waits, and
// "held TOKEN NANOSECONDS" when it is granted.
type Job string

// The jobs.
const (
	// Count adds N to the number in File, not atomically, one by one under the lock.
	Count Job = "count"
	// Hold takes the lock, and leaves when it is told to, N times or once. It says "left ok".
	Hold Job = "hold"
	// Storm takes and leaves three locks until it is killed. It says "works" once.
	Storm Job = "storm"
	// Renew holds the lock and renews it. It says what each renewal that fails answers, as
	// "renew gone" or "renew unknown", up to the first that is gone; then what Leave answers.
	Renew Job = "renew"
	// Ready says "ready", and takes the lock when it is told to.
	Ready Job = "ready"
)

// On is a function for Main that does an Order on the backend that open returns.
func On[Store any](open func(Store) (b driver.Backend, done func(), err error)) func(Order[Store]) error {
	return func(o Order[Store]) error {
		b, done, err := open(o.Store)
		if err != nil {
			return err
		}
		defer done()
		defer b.Close()
		w := &worker{Backend: b, key: o.Key, ttl: cmp.Or(o.TTL, b.Info().MaxTTL)}
		switch o.Do {
		case Count:
			return w.count(o.N, o.File)
		case Hold:
			return w.hold(max(o.N, 1), func() { Told() })
		case Storm:
			return w.storm()
		case Renew:
			return w.renew()
		case Ready:
			Say("ready")
			Told()
			return w.hold(1, func() {})
		}
		return fmt.Errorf("no job is called %q", o.Do)
	}
}

// worker does one job.
type worker struct {
	driver.Backend
	key string
	ttl time.Duration
}

// claim is an exclusive claim of this process.
func claim(key string, ttl time.Duration) driver.Claim {
	return driver.Claim{
		Key: key, ID: rand.Text(), Owner: fmt.Sprint("process ", os.Getpid()),
		Capacity: driver.RW, Weight: driver.RW, TTL: ttl, Span: 1,
	}
}

// take enters and waits for its grant.
func (w *worker) take(c driver.Claim, say bool) (driver.Ticket, error) {
	ctx := context.Background()
	t, err := w.Enter(ctx, c)
	if say && err == nil && !t.Granted {
		Say("waits", t.Token)
	}
	for err == nil && !t.Granted {
		t, err = w.Await(ctx, t)
	}
	if say && err == nil {
		Say("held", t.Token, time.Now().UnixNano())
	}
	return t, err
}

// leave says what Leave answers, and repeats it as long as nobody knows.
func (w *worker) leave(t driver.Ticket) {
	for {
		err := w.Leave(context.Background(), t, driver.Exit{})
		Say("left", word(err))
		if err == nil || driver.Gone(err) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// word is what an answer means.
func word(err error) string {
	switch {
	case err == nil:
		return "ok"
	case driver.Gone(err):
		return fmt.Sprint("gone ", err)
	}
	return fmt.Sprint("unknown ", err)
}

func (w *worker) count(n int, file string) error {
	for range n {
		t, err := w.take(claim(w.key, w.ttl), false)
		if err != nil {
			return err
		}
		if err := increment(file, t.Token); err != nil {
			return err
		}
		if err := w.Leave(context.Background(), t, driver.Exit{}); err != nil {
			return err
		}
	}
	return nil
}

// increment reads a number, logs the token, and writes the number plus one.
func increment(file string, token int64) error {
	text, err := os.ReadFile(file)
	n, err2 := strconv.Atoi(string(text))
	log, err3 := os.OpenFile(file+".log", os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	fmt.Fprintln(log, token)
	return errors.Join(log.Close(), os.WriteFile(file, []byte(strconv.Itoa(n+1)), 0o600))
}

// hold takes the lock and leaves after until has returned, n times.
func (w *worker) hold(n int, until func()) error {
	for range n {
		t, err := w.take(claim(w.key, w.ttl), true)
		if err != nil {
			return err
		}
		until()
		w.leave(t)
	}
	return nil
}

func (w *worker) storm() error {
	ctx := context.Background()
	for i := 0; ; i++ {
		c := claim(fmt.Sprint(w.key, i%3), w.ttl)
		if i%5 == 0 {
			c.Weight = 1
		}
		sent := time.Now()
		t, err := w.take(c, false)
		// Nobody renews it: behind dead processes it may wait for longer than its lease.
		if err != nil && !driver.Gone(err) && time.Since(sent) < w.ttl {
			return err
		}
		if i%7 == 0 {
			w.Renew(ctx, []driver.Ticket{t})
		}
		e := driver.Exit{}
		if i%11 == 0 {
			e.Mark = fmt.Sprint("mark ", i)
		}
		if err := w.Leave(ctx, t, e); err != nil && !driver.Gone(err) {
			return err
		}
		if i == 0 {
			Say("works")
		}
	}
}

func (w *worker) renew() error {
	t, err := w.take(claim(w.key, w.ttl), true)
	if err != nil {
		return err
	}
	tick := time.NewTicker(t.TTL / 5)
	defer tick.Stop()
	for !driver.Gone(err) {
		<-tick.C
		if err = w.Renew(context.Background(), []driver.Ticket{t})[0]; err != nil {
			Say("renew", word(err))
		}
	}
	w.leave(t)
	return nil
}
