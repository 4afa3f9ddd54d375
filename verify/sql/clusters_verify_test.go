//go:build verify

package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/health"
	"github.com/fencelock/fencelock/internal/errs"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// galeraLibrary is where Debian's package galera-4 has it.
const galeraLibrary = "/usr/lib/galera/libgalera_smm.so"

// freeAddrs returns addresses of loopback that nobody listens on.
func freeAddrs(t *testing.T, n int) (addrs []string) {
	t.Helper()
	ports, err := testserver.Ports(n)
	must(t, err)
	for _, port := range ports {
		addrs = append(addrs, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return addrs
}

// galera starts two nodes of a cluster, and returns a pool on each.
func galera(t *testing.T) (nodes [2]*sql.DB, servers [2]*testserver.Server) {
	t.Helper()
	if _, err := os.Stat(galeraLibrary); err != nil {
		t.Fatal("Galera is not installed; on Debian run: apt-get install galera-4 rsync")
	}
	addrs := freeAddrs(t, 6)
	cluster := "gcomm://"
	for i := range nodes {
		own := addrs[3*i:]
		s := testserver.MariaDB(t, testserver.Config(
			"wsrep_on=ON", "wsrep_provider="+galeraLibrary, "wsrep_cluster_address="+cluster,
			"wsrep_cluster_name=fencelock", fmt.Sprintf("wsrep_node_name=node%d", i), "wsrep_node_address=127.0.0.1",
			"wsrep_provider_options=gmcast.listen_addr=tcp://"+own[0]+";ist.recv_addr="+own[1]+";gcache.size=32M",
			"wsrep_sst_method=rsync", "wsrep_sst_receive_address="+own[2],
			"binlog_format=ROW", "innodb_autoinc_lock_mode=2", "innodb_flush_log_at_trx_commit=2"))
		servers[i], cluster = s, "gcomm://"+addrs[0]
		db, err := sql.Open("mysql", mariaDSN(s.Addr(), "locks"))
		must(t, err)
		t.Cleanup(func() { db.Close() })
		db.SetMaxOpenConns(16)
		nodes[i] = db
		until(t, "the node is synchronized", func() bool {
			var name, value string
			err := db.QueryRow("SHOW STATUS LIKE 'wsrep_ready'").Scan(&name, &value)
			return err == nil && value == "ON"
		})
	}
	return nodes, servers
}

// TestGaleraNodeWithoutQuorum: the other node has died, so this one does not know whether it is the
// cluster. It refuses, and nothing has happened.
func TestGaleraNodeWithoutQuorum(t *testing.T) {
	nodes, servers := galera(t)
	b := sqllock.New(nodes[0], sqllock.MySQL, &sqllock.Options{CreateTables: true})
	t.Cleanup(func() { b.Close() })
	held := hold(t, b, claim("held"))
	must(t, servers[1].Kill())
	until(t, "the node has no quorum", func() bool {
		var name, value string
		err := nodes[0].QueryRow("SHOW STATUS LIKE 'wsrep_ready'").Scan(&name, &value)
		return err == nil && value == "OFF"
	})
	refusedForNow(t, b, held, "1047", "connect to the primary")
	refusedForNow(t, sqllock.New(nodes[0], sqllock.MySQL, nil), held, "1047", "connect to the primary")
	run(t, nodes[0], "SET GLOBAL wsrep_provider_options = 'pc.bootstrap=true'")
	until(t, "the node is a cluster by itself", func() bool { return renew(b, soon(t), held) == nil })
	leave(t, b, held)
}

// TestGaleraWithTwoWriters: programs write to two nodes. A transaction lock, which would not exclude
// the other node, is refused, and leases exclude each other. Calls may run out of time: two nodes that
// write to one line undo each other's steps.
func TestGaleraWithTwoWriters(t *testing.T) {
	nodes, _ := galera(t)
	var backends [2]*sqllock.Backend
	for i, db := range nodes {
		backends[i] = sqllock.New(db, sqllock.MySQL, &sqllock.Options{CreateTables: true})
		t.Cleanup(func() { backends[i].Close() })
		leave(t, backends[i], hold(t, backends[i], claim("first")))
	}
	for i, db := range nodes {
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		_, err = sqllock.Tx(backends[i], tx).Lock(soon(t), "tx")
		says(t, fmt.Sprint("a transaction lock on node ", i), err, errs.Invalid, "several writers (Galera")
		must(t, tx.Rollback())
		e, err := backends[i].Examine(soon(t), time.Minute)
		must(t, err)
		if !strings.Contains(fmt.Sprint(e.Findings), "mysql-several-writers") {
			t.Errorf("doctor finds on node %d: %v", i, e.Findings)
		}
	}

	grants, late := onOneLock(t, backends)
	if grants < 10*late || grants == 0 {
		t.Errorf("%d grants, and %d calls that ran out of time", grants, late)
	}
}

// TestGaleraWithOneWriter: all programs name one node, as doctor advises. None of their calls runs out
// of time. Doctor goes on warning, as it says: the node does not see who writes to the other.
func TestGaleraWithOneWriter(t *testing.T) {
	nodes, _ := galera(t)
	var backends [2]*sqllock.Backend
	for i := range backends {
		backends[i] = sqllock.New(nodes[0], sqllock.MySQL, &sqllock.Options{CreateTables: true})
		t.Cleanup(func() { backends[i].Close() })
		leave(t, backends[i], hold(t, backends[i], claim("first")))
	}
	e, err := backends[0].Examine(soon(t), time.Minute)
	must(t, err)
	i := slices.IndexFunc(e.Findings, func(f health.Finding) bool { return f.Code == "mysql-several-writers" })
	if i < 0 || !strings.HasPrefix(e.Findings[i].Remedy, "name one node in the URL of every program") ||
		!strings.Contains(e.Findings[i].Remedy, "the finding stays") {
		t.Errorf("doctor finds %v", e.Findings)
	}
	if grants, late := onOneLock(t, backends); late > 0 || grants == 0 {
		t.Errorf("%d grants, and %d calls that ran out of time", grants, late)
	}
}

// onOneLock has eight programs take one lock for some seconds. It returns how many grants there were,
// and how many calls ran out of time.
func onOneLock(t *testing.T, backends [2]*sqllock.Backend) (granted, ranOut int64) {
	var held, grants, late atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 8 {
		b := backends[i%2]
		wg.Go(func() {
			for ctx.Err() == nil && grants.Load() < 500 {
				call, cancel := context.WithTimeout(context.Background(), time.Minute)
				err := once(call, b, &held)
				cancel()
				switch {
				case err == nil:
					grants.Add(1)
				case errors.Is(err, context.DeadlineExceeded):
					late.Add(1)
					t.Log(err)
				default:
					t.Errorf("on node %d: %v", i%2, err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d grants, %d calls ran out of time", grants.Load(), late.Load())
	return grants.Load(), late.Load()
}

// once takes the lock, and gives it back. held counts those who have it.
func once(ctx context.Context, b *sqllock.Backend, held *atomic.Int64) error {
	step := func(what string, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	ticket, err := b.Enter(ctx, claim("k"))
	if err != nil {
		return step("enter", err)
	}
	for !ticket.Granted {
		if ticket, err = b.Await(ctx, ticket); err != nil {
			return step("await", err)
		}
	}
	if n := held.Add(1); n != 1 {
		return fmt.Errorf("%d hold the lock", n)
	}
	held.Add(-1)
	return step("leave", b.Leave(ctx, ticket, driver.Exit{}))
}

// TestPgpoolWithALaggingStandby is TestReadsAreAnsweredByAStandby with Pgpool-II, which sends all reads
// that it knows of to the standby, and the standby is two seconds behind.
func TestPgpoolWithALaggingStandby(t *testing.T) {
	t.Parallel()
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		s, standby, _ := replicated(t, testserver.Config("recovery_min_apply_delay = 2s"))
		db := s.openDSN(t, s.on.URL())
		s.follows(t, db, s.openDSN(t, standby.URL()))
		pool := testserver.Pgpool(t, s.on, standby)
		// Pgpool sends what it does not take for a write to the standby.
		plain := s.openDSN(t, pool.URL()+"&default_query_exec_mode=exec")
		if !column[bool](t, plain, "SELECT current_setting('transaction_read_only') = 'on'")[0] {
			t.Fatal("Pgpool has asked the primary; this test shows nothing")
		}
		s.handOversAt(t, db, pool.Addr())
		b := s.new(t, s.openDSN(t, pool.URL()+"&default_query_exec_mode=exec"), nil)
		e, err := b.Examine(soon(t), time.Minute)
		must(t, err)
		var codes []string
		for _, f := range e.Findings {
			codes = append(codes, f.Code)
		}
		if !strings.Contains(strings.Join(codes, " "), "postgres-read-splitting") {
			t.Errorf("the findings are %v; want postgres-read-splitting", codes)
		}
	})
}
