package traffic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/rpc"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencelock/fencelock/internal/line"
	"github.com/fencelock/fencelock/internal/worker"
)

// Order is what a worker is to do.
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

// Way is the way in which the lock of a key is used.
func Way(key string) string {
	way, _, _ := strings.Cut(key, "/")
	return way
}

// Ways are the ways to use locks.
func Ways() []string { return []string{"mutex", "rw", "sem", "reentrant", "set", "guard"} }

// Worker does what this process was started for, and ends the program; it returns at once if
// it is no worker. It works until it is told to end, and then gives back what it holds.
func Worker(table Table) { worker.Main(func(o Order) error { return work(table, o) }) }

func work(table Table, o Order) error {
	line.ForgetEvery = time.Second // each hour of a program that runs for months comes in an hour of faults, too
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
		worker.Told()
		stop()
	}()
	var all errgroup.Group
	all.Go(func() error { tick(ctx, rec); return nil })
	if o.Ways == nil {
		o.Ways = service.Ways
	}
	guarded, err := rpc.Dial("tcp", o.Resource)
	if err != nil {
		return err
	}
	defer guarded.Close()
	for c := range clients {
		all.Go(func() error {
			locks, err := service.Open(ctx, o.URL, o.Via, o.TTL)
			if err != nil {
				return err
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
			return locks.Close()
		})
	}
	return errors.Join(all.Wait(), rec.Close())
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
