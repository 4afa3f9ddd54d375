package fault

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/verify/traffic"
)

// need is what a world must have for a fault.
type need struct {
	text string // for people
	met  func(*World) bool
}

var (
	workers = need{"workers", func(*World) bool { return true }}
	network = need{"servers that are reached over a network", func(w *World) bool {
		return len(w.Workers) > 0 && len(w.Workers[0].Proxies()) > 0
	}}
	servers = need{"servers of the torture's own", func(w *World) bool { return len(w.Servers) > 0 }}
	redis   = need{"a single Redis of the torture's own", func(w *World) bool { return w.Redis && len(w.Servers) == 1 }}
	group   = need{"a group of the torture's own, of which another server can take over", func(w *World) bool {
		return w.Failover != nil
	}}
	clocks = need{"Redis, SQLite, PostgreSQL or MariaDB of the torture's own", func(w *World) bool {
		return w.Clock != nil
	}}
	statements = need{"PostgreSQL or MariaDB of the torture's own", func(w *World) bool {
		return w.EndStatements != nil
	}}
	cluster = need{"a Redis Cluster of the torture's own", func(w *World) bool { return w.HashSlot != nil }}
)

func never(*World) bool    { return false }
func outage(*World) bool   { return true }
func shared(w *World) bool { return w.Shared }

// All returns every fault.
func All() []Fault {
	return []Fault{
		{"kill", "kill -9 of a worker, and another in its place", workers, never, kill},
		{"pause", "SIGSTOP of a worker for longer than a lease", workers, shared, stop(12, 25)},
		{"blink", "SIGSTOP of a worker for less than a lease", workers, shared, stop(2, 9)},
		{"cut", "all connections of a worker reset, several times", network, outage, cut},
		{"silence", "nothing passes one way between a worker and the servers, or both ways", network, outage, silence},
		{"latency", "up to 0.8 leases between a worker's request and its answer", network, outage, latency},
		{"server-pause", "SIGSTOP of a server; of several of etcd, the one that goes on may end leases that " +
			"are alive, and holders are exempt from I1 until they learn it", servers, outage, serverPause},
		{"server-restart", "kill -9 of a server, which starts again with what it had acknowledged",
			servers, outage, serverRestart},
		{"script-flush", "Redis forgets its scripts", redis, never, ask("SCRIPT", "FLUSH")},
		{"client-kill", "Redis ends all connections, or those that listen", redis, outage, clientKill},
		{"failover", "another server of the group takes over; where it may forget what was acknowledged, " +
			"holders are exempt from I1 until they learn it", group, outage, failover},
		{"clock", "the clock of the store steps forward by up to two leases, and leases end early: " +
			"holders are exempt from I1 until they learn it, their tokens are not", clocks, never, clock},
		{"statements", "the server ends statements of the workers at random moments, as KILL QUERY and " +
			"pg_cancel_backend do", statements, outage, endStatements},
		{"slots", "the hash slot of a key in use moves to another server, and others ask meanwhile",
			cluster, outage, slots},
		{"flushall", "Redis forgets everything: who holds a lock then learns it late, " +
			"and is exempt from I1 until it does", redis, outage, flushAll},
	}
}

func (w *World) worker(rng *rand.Rand) Worker { return w.Workers[rng.IntN(len(w.Workers))] }
func (w *World) server(rng *rand.Rand) Server { return w.Servers[rng.IntN(len(w.Servers))] }

func kill(_ context.Context, w *World, rng *rand.Rand) error { return w.worker(rng).Kill() }

// stop stops a worker for low to high tenths of a lease; now and then it is killed then.
func stop(low, high time.Duration) func(context.Context, *World, *rand.Rand) error {
	return func(ctx context.Context, w *World, rng *rand.Rand) error {
		one := w.worker(rng)
		if err := one.Stop(); err != nil {
			return err
		}
		pause(ctx, between(rng, low*w.TTL/10, high*w.TTL/10))
		if rng.IntN(8) == 0 {
			return one.Kill()
		}
		return one.Resume()
	}
}

func cut(ctx context.Context, w *World, rng *rand.Rand) error {
	one := w.worker(rng)
	for range 1 + rng.IntN(6) {
		for _, p := range one.Proxies() {
			p.Cut()
		}
		if !pause(ctx, between(rng, 0, w.TTL/2)) {
			break
		}
	}
	return nil
}

// silence is a partition of one worker: one way, or both. In the end connections are cut, or
// what was held back arrives.
func silence(ctx context.Context, w *World, rng *rand.Rand) error {
	one := w.worker(rng)
	which := rng.IntN(3)
	for _, p := range one.Proxies() {
		if which != 0 {
			p.Hold(faultproxy.ToClient)
		}
		if which != 1 {
			p.Hold(faultproxy.ToServer)
		}
	}
	pause(ctx, between(rng, w.TTL/5, 2*w.TTL))
	end := rng.IntN(2) == 0
	for _, p := range one.Proxies() {
		if end {
			p.Cut()
		}
		p.Resume()
	}
	return nil
}

func latency(ctx context.Context, w *World, rng *rand.Rand) error {
	one := w.worker(rng)
	d := between(rng, w.TTL/50, w.TTL*8/10)
	for _, p := range one.Proxies() {
		p.Delay(d)
	}
	pause(ctx, between(rng, w.TTL, 2*w.TTL))
	for _, p := range one.Proxies() {
		p.Resume()
	}
	return nil
}

func serverPause(ctx context.Context, w *World, rng *rand.Rand) error {
	one := w.server(rng)
	if err := one.Pause(); err != nil {
		return err
	}
	pause(ctx, between(rng, w.TTL/10, 2*w.TTL))
	if w.Usurped {
		w.Rec.Write(traffic.Line{Op: traffic.Forgot})
	}
	return one.Continue()
}

func serverRestart(ctx context.Context, w *World, rng *rand.Rand) error {
	one := w.server(rng)
	if err := one.Kill(); err != nil {
		return err
	}
	pause(ctx, between(rng, 0, w.TTL))
	return one.Restart()
}

func ask(words ...string) func(context.Context, *World, *rand.Rand) error {
	return func(_ context.Context, w *World, rng *rand.Rand) error {
		_, err := w.server(rng).Ask(words...)
		return err
	}
}

func clientKill(_ context.Context, w *World, rng *rand.Rand) error {
	what := []string{"normal", "pubsub"}[rng.IntN(2)]
	_, err := w.server(rng).Ask("CLIENT", "KILL", "TYPE", what)
	return err
}

func failover(ctx context.Context, w *World, rng *rand.Rand) error {
	if w.Lossy {
		w.Rec.Write(traffic.Line{Op: traffic.Forgot})
	}
	err := w.Failover(rng)
	pause(ctx, 2*w.TTL) // clients find the new one
	return err
}

func flushAll(_ context.Context, w *World, rng *rand.Rand) error {
	// Nobody knows what was held between these two lines.
	w.Rec.Write(traffic.Line{Op: traffic.Forgot})
	_, err := w.server(rng).Ask("FLUSHALL")
	return err
}

// clock lets time pass for the store alone. Nobody knows which leases it has ended.
func clock(ctx context.Context, w *World, rng *rand.Rand) error {
	w.Rec.Write(traffic.Line{Op: traffic.Forgot})
	return w.Clock(context.WithoutCancel(ctx), between(rng, w.TTL/4, 2*w.TTL))
}

// slots leaves a hash slot between two servers for a while, before its keys have moved.
func slots(ctx context.Context, w *World, rng *rand.Rand) error {
	finish, err := w.HashSlot(rng)
	if err != nil {
		return err
	}
	pause(ctx, between(rng, w.TTL/20, w.TTL))
	return finish()
}

// endStatements goes on for up to two leases, with a gap between none and ten milliseconds.
func endStatements(ctx context.Context, w *World, rng *rand.Rand) error {
	gap := []time.Duration{0, time.Millisecond, 10 * time.Millisecond}[rng.IntN(3)]
	return w.EndStatements(ctx, between(rng, w.TTL/4, 2*w.TTL), gap)
}
