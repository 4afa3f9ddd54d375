package torture

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
	"github.com/fencelock/fencelock/verify/traffic"
)

// need is what a world must have for a fault.
type need struct {
	text string // for people
	met  func(*world) bool
}

var (
	workers = need{"workers", func(*world) bool { return true }}
	network = need{"servers that are reached over a network", func(w *world) bool {
		return len(w.victims) > 0 && len(w.victims[0].between()) > 0
	}}
	ownServers = need{"servers of the torture's own", func(w *world) bool { return len(w.servers) > 0 }}
	oneRedis   = need{"a single Redis of the torture's own", func(w *world) bool {
		return w.redis && len(w.servers) == 1
	}}
	group = need{"a group of the torture's own, of which another server can take over", func(w *world) bool {
		return w.failover != nil
	}}
	clocks = need{"Redis, SQLite, PostgreSQL or MariaDB of the torture's own", func(w *world) bool {
		return w.clock != nil
	}}
	statements = need{"PostgreSQL or MariaDB of the torture's own", func(w *world) bool {
		return w.endStatements != nil
	}}
	disks = need{"Linux, root, and SQLite, Redis, PostgreSQL, MariaDB, etcd or a quorum of the torture's own",
		func(w *world) bool { return len(w.disks) > 0 }}
	cluster = need{"a Redis Cluster of the torture's own", func(w *world) bool { return w.hashSlot != nil }}
)

func never(*world) bool    { return false }
func always(*world) bool   { return true }
func shared(w *world) bool { return w.shared }
func lossy(w *world) bool  { return w.lossy }

// faults are all of them.
var faults = []fault{
	{"kill", "kill -9 of a worker, and another in its place", workers, never, never, kill},
	{"pause", "SIGSTOP of a worker for longer than a lease", workers, shared, never, stop(12, 25)},
	{"blink", "SIGSTOP of a worker for less than a lease", workers, shared, never, stop(2, 9)},
	{"cut", "all connections of a worker reset, several times", network, always, never, cut},
	{"silence", "nothing passes one way between a worker and the servers, or both ways",
		network, always, never, silence},
	{"latency", "up to 0.8 leases between a worker's request and its answer", network, always, never, latency},
	{"server-pause", "SIGSTOP of a server; of several of etcd, the one that goes on may end leases that " +
		"are alive, and holders are exempt from I1 until they learn it", ownServers, always, never, serverPause},
	{"server-restart", "kill -9 of a server, which starts again with what it had acknowledged",
		ownServers, always, never, serverRestart},
	{"disk-full", "the disk of a server, or of SQLite, is full; a server that ends then starts again",
		disks, always, never, diskFull},
	{"script-flush", "Redis forgets its scripts", oneRedis, never, never, ask("SCRIPT", "FLUSH")},
	{"client-kill", "Redis ends all connections, or those that listen", oneRedis, always, never, clientKill},
	{"failover", "another server of the group takes over; where it may forget what was acknowledged, " +
		"holders are exempt from I1 until they learn it", group, always, lossy, failover},
	{"clock", "the clock of the store steps forward by up to two leases, and leases end early: " +
		"holders are exempt from I1 until they learn it, their tokens are not", clocks, never, always, clock},
	{"statements", "the server ends statements of the workers at random moments, as KILL QUERY and " +
		"pg_cancel_backend do", statements, always, never, endStatements},
	{"slots", "the hash slot of a key in use moves to another server, and others ask meanwhile",
		cluster, always, never, slots},
	{"flushall", "Redis forgets everything: who holds a lock then learns it late, " +
		"and is exempt from I1 until it does", oneRedis, always, always, ask("FLUSHALL")},
}

func (w *world) victim(rng *rand.Rand) victim             { return w.victims[rng.IntN(len(w.victims))] }
func (w *world) server(rng *rand.Rand) *testserver.Server { return w.servers[rng.IntN(len(w.servers))] }

func kill(_ context.Context, w *world, rng *rand.Rand) error { return w.victim(rng).kill() }

// stop stops a worker for low to high tenths of a lease; now and then it is killed then.
func stop(low, high time.Duration) func(context.Context, *world, *rand.Rand) error {
	return func(ctx context.Context, w *world, rng *rand.Rand) error {
		one := w.victim(rng)
		if err := one.stop(); err != nil {
			return err
		}
		traffic.Sleep(ctx, between(rng, low*w.ttl/10, high*w.ttl/10))
		if rng.IntN(8) == 0 {
			return one.kill()
		}
		return one.resume()
	}
}

func cut(ctx context.Context, w *world, rng *rand.Rand) error {
	one := w.victim(rng)
	for range 1 + rng.IntN(6) {
		each(one.between(), (*faultproxy.Proxy).Cut)
		if !traffic.Sleep(ctx, between(rng, 0, w.ttl/2)) {
			break
		}
	}
	return nil
}

// silence is a partition of one worker: one way, or both. In the end connections are cut, or
// what was held back arrives.
func silence(ctx context.Context, w *world, rng *rand.Rand) error {
	one := w.victim(rng)
	which := rng.IntN(3)
	for _, p := range one.between() {
		if which != 0 {
			p.Hold(faultproxy.ToClient)
		}
		if which != 1 {
			p.Hold(faultproxy.ToServer)
		}
	}
	traffic.Sleep(ctx, between(rng, w.ttl/5, 2*w.ttl))
	if rng.IntN(2) == 0 {
		each(one.between(), (*faultproxy.Proxy).Cut)
	}
	each(one.between(), (*faultproxy.Proxy).Resume)
	return nil
}

func latency(ctx context.Context, w *world, rng *rand.Rand) error {
	one := w.victim(rng)
	d := between(rng, w.ttl/50, w.ttl*8/10)
	each(one.between(), func(p *faultproxy.Proxy) { p.Delay(d) })
	traffic.Sleep(ctx, between(rng, w.ttl, 2*w.ttl))
	each(one.between(), (*faultproxy.Proxy).Resume)
	return nil
}

func serverPause(ctx context.Context, w *world, rng *rand.Rand) error {
	one := w.server(rng)
	if err := one.Pause(); err != nil {
		return err
	}
	traffic.Sleep(ctx, between(rng, w.ttl/10, 2*w.ttl))
	if w.usurped {
		w.rec.Write(traffic.Line{Op: traffic.Forgot})
	}
	return one.Continue()
}

func serverRestart(ctx context.Context, w *world, rng *rand.Rand) error {
	one := w.server(rng)
	if err := one.Kill(); err != nil {
		return err
	}
	traffic.Sleep(ctx, between(rng, 0, w.ttl))
	return one.Restart()
}

func diskFull(ctx context.Context, w *world, rng *rand.Rand) error {
	d := w.disks[rng.IntN(len(w.disks))]
	free, err := d.fill()
	if err != nil {
		return err
	}
	traffic.Sleep(ctx, between(rng, w.ttl/5, 2*w.ttl))
	if err := free(); err != nil || d.server == nil {
		return err
	}
	select {
	case <-d.server.Done():
		return d.server.Restart()
	case <-time.After(w.ttl):
	}
	if !w.halts {
		return nil
	}
	if err := d.server.Kill(); err != nil {
		return err
	}
	return d.server.Restart()
}

func ask(words ...string) func(context.Context, *world, *rand.Rand) error {
	return func(_ context.Context, w *world, rng *rand.Rand) error {
		_, err := w.server(rng).Ask(words...)
		return err
	}
}

func clientKill(_ context.Context, w *world, rng *rand.Rand) error {
	what := []string{"normal", "pubsub"}[rng.IntN(2)]
	_, err := w.server(rng).Ask("CLIENT", "KILL", "TYPE", what)
	return err
}

func failover(ctx context.Context, w *world, rng *rand.Rand) error {
	err := w.failover(rng)
	traffic.Sleep(ctx, 2*w.ttl) // clients find the new one
	return err
}

// clock lets time pass for the store alone.
func clock(ctx context.Context, w *world, rng *rand.Rand) error {
	return w.clock(context.WithoutCancel(ctx), between(rng, w.ttl/4, 2*w.ttl))
}

// slots leaves a hash slot between two servers for a while, before its keys have moved.
func slots(ctx context.Context, w *world, rng *rand.Rand) error {
	finish, err := w.hashSlot(rng)
	if err != nil {
		return err
	}
	traffic.Sleep(ctx, between(rng, w.ttl/20, w.ttl))
	return finish()
}

// endStatements goes on for up to two leases, with a gap between none and ten milliseconds.
func endStatements(ctx context.Context, w *world, rng *rand.Rand) error {
	gap := []time.Duration{0, time.Millisecond, 10 * time.Millisecond}[rng.IntN(3)]
	return w.endStatements(ctx, between(rng, w.ttl/4, 2*w.ttl), gap)
}

// statementEnder returns what ends the statements of everybody else in the database at u,
// again and again for a duration, with a gap between two; nil where there are no statements
// that a server could end. On SQLite the workers interrupt their own: see traffic.Interrupt.
func statementEnder(u *storeurl.URL) func(ctx context.Context, d, gap time.Duration) error {
	if u.Scheme != "postgres" && u.Scheme != "mysql" {
		return nil
	}
	return func(ctx context.Context, d, gap time.Duration) error {
		db, err := u.SQL()
		if err != nil {
			return err
		}
		defer db.Close()
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		ended := false
		for ctx.Err() == nil {
			switch err := endEach(ctx, u.Scheme, db, gap); {
			case err == nil:
				ended = true
			case !ended && ctx.Err() == nil:
				return err
			}
		}
		return nil
	}
}

// endEach ends one statement of each connection but its own.
func endEach(ctx context.Context, scheme string, db *sql.DB, gap time.Duration) error {
	list, end := "SELECT GROUP_CONCAT(id) FROM information_schema.processlist "+
		"WHERE db = DATABASE() AND id <> CONNECTION_ID()", "KILL QUERY %s"
	if scheme == "postgres" {
		list, end = "SELECT string_agg(pid::text, ',') FROM pg_stat_activity "+
			"WHERE datname = current_database() AND pid <> pg_backend_pid()", "SELECT pg_cancel_backend(%s)"
	}
	var ids sql.NullString // by commas, NULL if there are none
	if err := db.QueryRowContext(ctx, list).Scan(&ids); err != nil {
		return err
	}
	if !ids.Valid {
		traffic.Sleep(ctx, 10*time.Millisecond)
		return nil
	}
	for id := range strings.SplitSeq(ids.String, ",") {
		_, _ = db.ExecContext(ctx, fmt.Sprintf(end, id)) // the connection may have ended
		traffic.Sleep(ctx, gap)
	}
	return nil
}
