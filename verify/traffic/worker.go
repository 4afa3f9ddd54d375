package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/rpc"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Order is what a worker is to do. It comes as JSON in its environment.
type Order struct {
	Proc     string // its name: number.life
	Service  string // in the table
	URL      string
	Via      string // see Service.Open
	TTL      time.Duration
	Seed     uint64
	Begun    int64 // of the whole run, by Now
	Dir      string
	Resource string
	Epoch    time.Duration // after which other keys are used
	Ways     []string      // nil for all that the service is able to do
}

// What a worker process consists of.
const (
	clients = 2
	users   = 2 // of each client
	Keys    = 2 // in use at once, for each way of use
)

// Key is the n-th of the keys that are in use now in one way.
func (o Order) Key(way string, n int) string {
	epoch := (Now() - o.Begun) / int64(o.Epoch)
	return fmt.Sprintf("%s/%d/%d", way, epoch, n)
}

// Variable is the environment variable that makes a program a worker.
const Variable = "FENCELOCK_TORTURE_ORDER"

// Ways are the ways to use locks.
func Ways() []string { return []string{"mutex", "rw", "sem", "reentrant", "set", "guard"} }

// Worker does what the environment orders, and ends the program; it returns at once if
// there is no order. It works until its standard input ends, and then gives back what
// it holds.
func Worker(table Table) {
	text := os.Getenv(Variable)
	if text == "" {
		return
	}
	var o Order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = work(table, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func work(table Table, o Order) error {
	service, ok := table[o.Service]
	if !ok {
		return fmt.Errorf("no service is called %q", o.Service)
	}
	rec, err := NewRecorder(filepath.Join(o.Dir, o.Proc+".jsonl"), o.Proc)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var all sync.WaitGroup
	all.Go(func() { tick(ctx, rec) })
	if o.Ways == nil {
		o.Ways = service.Ways
	}
	guarded, err := rpc.Dial("tcp", o.Resource)
	if err != nil {
		return err
	}
	defer guarded.Close()
	errs := make([]error, clients)
	for c := range clients {
		all.Go(func() {
			locks, err := service.Open(ctx, o.URL, o.Via, o.TTL)
			if err != nil {
				errs[c] = err
				return
			}
			var own sync.WaitGroup
			for n := range users {
				id := c*users + n
				u := &user{
					o: o, service: service, locks: locks, rec: rec, id: id, guarded: guarded,
					rng: rand.New(rand.NewPCG(o.Seed, uint64(id))),
				}
				own.Go(func() { u.run(ctx) })
			}
			own.Wait()
			errs[c] = locks.Close()
		})
	}
	all.Wait()
	return errors.Join(append(errs, rec.Close())...)
}

// lateness from which on a tick is worth a line.
const lateness = 10 * time.Millisecond

// tick measures how late the machine runs what is due.
func tick(ctx context.Context, rec *Recorder) {
	const every = 5 * time.Millisecond
	for ctx.Err() == nil {
		due := Now() + int64(every)
		Sleep(ctx, every)
		if now := Now(); now-due > int64(lateness) {
			rec.Write(Line{At: now, Op: Tick, Ns: now - due})
		}
	}
}
