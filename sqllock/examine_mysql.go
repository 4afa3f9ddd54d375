package sqllock

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver/health"
)

func examineMySQL(ctx context.Context, e *examination) (err error) {
	e.ServerTime = true
	e.read, err = settings(ctx, e.db, "SHOW VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', "+
		"'sync_binlog', 'log_bin', 'tx_isolation', 'transaction_isolation', 'innodb_lock_wait_timeout', "+
		"'wait_timeout', 'read_only', "+clusterVariables+")")
	if err != nil {
		return err
	}
	// MySQL does not say so to every user.
	status, err := settings(ctx, e.db, "SHOW GLOBAL STATUS LIKE 'Slaves_running'")
	if err != nil {
		return err
	}
	if err := e.mysqlSplits(ctx); err != nil {
		return err
	}
	e.mysqlServers(status["slaves_running"])
	e.mysqlSettings()
	return nil
}

// mysqlSplits finds out whether another server answers reads than the one that writes go to.
func (e *examination) mysqlSplits(ctx context.Context) error {
	const who = "SELECT CONCAT(@@hostname, ':', @@port, ', server_id ', @@server_id)"
	// A proxy that splits reads sends a transaction, and a locking read, to the server for writes.
	var writes string
	if e.onNew(ctx, true, who+" FOR UPDATE", &writes) != nil {
		return ctx.Err()
	}
	reads, err := e.readsElsewhere(ctx, who, func(answer string) bool { return answer != writes })
	e.add(reads != "" && err == nil, health.Warning, "mysql-read-splitting", "reads",
		"answered by "+reads+", writes by "+writes,
		"A proxy sends some statements or connections to one server, and others to another. A replica that lags "+
			"behind does not show the latest grants, so steps are done again and again until it has caught up.",
		"name the primary itself in the URL, past the proxy; or have the proxy send all that the user of the locks "+
			"asks to the primary: in ProxySQL a rule for that username before the one for SELECT, in MaxScale a "+
			"service with router = readconnroute and router_options = master")
	return err
}

// mysqlServers judges which other servers there are. A replica takes writes by default.
func (e *examination) mysqlServers(follows string) {
	readOnly := e.read["read_only"]
	e.add(readOnly != "OFF" && readOnly != "0", health.Error, "mysql-read-only", "read_only", "",
		"A replica is set so. It takes no writes, or only those of administrators, whose locks no other server has.",
		"connect to the primary; or if this is it: SET GLOBAL read_only = OFF")
	e.add(follows != "" && follows != "0" && readOnly != "ON", health.Warning, "mysql-replica",
		"servers that it follows",
		follows,
		"The server is a replica and takes writes. Locks on it and locks on the server that it follows do not exclude "+
			"each other: a client of each may hold one lock.",
		"connect to the primary, and SET GLOBAL read_only = ON on this server")
	cluster := severalWriters(e.read)
	remedy := "name one node in the URL of every program, and another one only while that node is down; the finding " +
		"stays, because a node does not see who writes to the others"
	if strings.HasPrefix(cluster, "Group Replication") {
		remedy = "SELECT group_replication_switch_to_single_primary_mode()"
	}
	e.add(cluster != "", health.Warning, "mysql-several-writers", "writers of the cluster", cluster,
		"Leases are safe there, but steps on one line from two nodes undo each other and are repeated, so crowds "+
			"at one key wait longer. Locks of transactions (sqllock.Tx) are refused: a row that is locked on one "+
			"node is free on the others.",
		remedy)
}

func (e *examination) mysqlSettings() {
	e.Volatile = e.read["innodb_flush_log_at_trx_commit"] != "1"
	e.add(e.Volatile, health.Warning, "mysql-flush-log", "innodb_flush_log_at_trx_commit", "",
		"A crash of the machine, and with 0 of the server, forgets the locks of the last second and lets second "+
			"holders in.",
		"SET GLOBAL innodb_flush_log_at_trx_commit = 1")
	e.add(e.read["log_bin"] == "ON" && e.read["sync_binlog"] != "1", health.Warning, "mysql-sync-binlog",
		"sync_binlog", "",
		"A crash of the machine may lose the end of the binary log, so replicas never have the last locks.",
		"SET GLOBAL sync_binlog = 1")
	isolation := cmp.Or(e.read["transaction_isolation"], e.read["tx_isolation"])
	e.add(isolation != "REPEATABLE-READ" && isolation != "READ-COMMITTED", health.Note, "mysql-isolation",
		"transaction_isolation", isolation,
		"Locks are correct with it. SERIALIZABLE makes steps wait for readers, and READ-UNCOMMITTED gains nothing.",
		"SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED")
	seconds := func(name string) (d time.Duration, ok bool) {
		n, err := strconv.Atoi(e.read[name])
		return time.Duration(n) * time.Second, err == nil
	}
	wait, ok := seconds("innodb_lock_wait_timeout")
	e.add(ok && wait == 0, health.Warning, "mysql-lock-wait", "innodb_lock_wait_timeout", "",
		"Steps on one line that meet are rolled back at once and tried again, instead of one after the other.",
		"SET GLOBAL innodb_lock_wait_timeout = 10")
	e.add(ok && wait > e.ttl, health.Note, "mysql-lock-wait", "innodb_lock_wait_timeout", "",
		"A step that a stuck transaction holds up goes on in the server for so many seconds, longer than the lease of "+
			e.ttl.String()+", after its caller has given up.",
		"SET GLOBAL innodb_lock_wait_timeout = 10")
	idle, ok := seconds("wait_timeout")
	e.add(ok && idle < e.ttl/3, health.Warning, "mysql-wait-timeout", "wait_timeout", "",
		"The server closes connections that are idle for so many seconds, before the next renewal, which comes "+
			"after a third of the lease of "+e.ttl.String()+". Each renewal connects anew.",
		"SET GLOBAL wait_timeout = 28800; or in a program a ConnMaxIdleTime of the *sql.DB that is shorter")
}
