// Cron is a service of three replicas with the same jobs. Their clocks differ by more
// than a job takes, and one replica is killed in the middle of a run. It plays that with
// gocron and with robfig/cron, under a lock alone and under what remembers the tick, and
// counts how often each tick was run.
//
//	go run ./cron
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

const (
	every = 2 * time.Second       // from tick to tick
	work  = 20 * time.Millisecond // what a run takes: less than the clocks are apart
	lease = time.Second           // how long a replica that was killed is missed, at the most
	ticks = 4                     // how many are counted
)

// behind says by how much the clock of each replica is late.
var behind = map[string]time.Duration{"a": 0, "b": 250 * time.Millisecond, "c": 500 * time.Millisecond}

// kinds are the ways to share a job, in order.
var kinds = []struct{ name, why string }{
	{"lock-alone", "gocron: the run is over when the next clock reaches the tick, and the lock is free again"},
	{"gocronlock", "gocron: the name stays taken for nine tenths of the period; a run that dies is missed"},
	{"gocron-once", "gocron with Client.Once: the tick is remembered, and a run that dies is repeated"},
	{"cronlock", "robfig/cron with cronlock.Schedule, which is Client.Once"},
}

func main() {
	log.SetFlags(0)
	if len(os.Args) == 5 && os.Args[1] == "replica" {
		if err := replica(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			log.Fatal(os.Args[2], " ", os.Args[3], ": ", err)
		}
		return
	}
	if err := story(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func story(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "cron")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, err := testserver.StartRedis(ctx, dir)
	if err != nil {
		return err
	}
	defer server.Stop()

	fmt.Printf("three replicas, clocks 0, 250 and 500 ms behind; a job of %v, each %v\n", work, every)
	fmt.Printf("%d ticks; in the third one the replica that runs the job is killed\n\n", ticks)
	played, err := play(ctx, server)
	if err != nil {
		return err
	}
	for _, k := range kinds {
		var columns []string
		for _, t := range played[k.name] {
			columns = append(columns, t.String())
		}
		fmt.Printf("%-12s %s\n             %s\n", k.name, strings.Join(columns, "   "), k.why)
	}
	return nil
}

// tick is what happened to one time of the schedule, over all replicas.
type tick struct {
	begun, done int
	killed      bool
	tokens      []int64 // of the runs, in the order in which they began; 0 where the job has none
}

func (t tick) String() string {
	s := fmt.Sprintf("ran %d×", t.done)
	if t.killed {
		s += fmt.Sprintf(" (begun %d×, one killed)", t.begun)
	}
	return s
}
