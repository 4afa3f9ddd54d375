package doctor_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
)

// splitReads is a proxy before MariaDB, as ProxySQL is with a rule for ^SELECT: outside of transactions
// reads go to the replica, and everything else to the primary. It returns its address.
func splitReads(t *testing.T, primary, replica string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer client.Close()
				_ = splitConn(client, primary, replica) // it ends with the connection
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr().String()
}

// packet reads one packet with its header.
func packet(from io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	p := append(head, make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)...)
	_, err := io.ReadFull(from, p[4:])
	return p, err
}

func splitConn(client net.Conn, primaryAddr, replicaAddr string) error {
	primary, err := net.Dial("tcp", primaryAddr)
	if err != nil {
		return err
	}
	defer primary.Close()
	replica, err := net.Dial("tcp", replicaAddr)
	if err != nil {
		return err
	}
	defer replica.Close()
	next := func(from net.Conn) (p []byte) {
		if err == nil {
			p, err = packet(from)
		}
		return p
	}
	send := func(p []byte, to ...net.Conn) {
		for _, conn := range to {
			if err == nil {
				_, err = conn.Write(p)
			}
		}
	}
	// The user has no password, so the answer to one greeting fits the other.
	send(next(primary), client)
	next(replica)
	send(next(client), primary, replica)
	send(next(primary), client)
	next(replica)
	for _, s := range []net.Conn{primary, replica} {
		go func() { _, _ = io.Copy(client, s); client.Close() }()
	}
	for inTx := false; err == nil; {
		p := next(client)
		if err != nil {
			break
		}
		text := strings.ToUpper(string(p[5:]))
		switch {
		case strings.HasPrefix(text, "START TRANSACTION"), strings.HasPrefix(text, "BEGIN"):
			inTx = true
		case strings.HasPrefix(text, "COMMIT"), strings.HasPrefix(text, "ROLLBACK"):
			inTx = false
		}
		to := primary
		if p[4] == 3 && strings.HasPrefix(text, "SELECT") && !strings.HasSuffix(text, "FOR UPDATE") && !inTx {
			to = replica
		}
		send(p, to)
	}
	return err
}

// TestProxyThatSplitsReadsOfMariaDB: a program's URL names a proxy that sends reads to a replica. Doctor
// says so, and what it says to do takes the finding away.
func TestProxyThatSplitsReadsOfMariaDB(t *testing.T) {
	t.Parallel()
	primary, replica := replicatedMariaDB(t, "read_only=ON")
	url := strings.Replace(primary.URL(), primary.Addr(), splitReads(t, primary.Addr(), replica.Addr()), 1)
	feedsBack(t, "mysql-read-splitting")
	was := byHand(t, "warning mysql-read-splitting", "name the primary itself in the URL", time.Minute, func() driver.Backend {
		return open(t, url).Backend
	}, func() { url = primary.URL() })
	if !strings.Contains(was.Value, "server_id 2, writes by") {
		t.Errorf("found: %v", was)
	}
	finds(t, open(t, url).Backend, time.Minute)
}

// TestReplicaOfMariaDBThatTakesWrites: a program's URL names a replica that was set up without read_only.
func TestReplicaOfMariaDBThatTakesWrites(t *testing.T) {
	t.Parallel()
	primary, replica := replicatedMariaDB(t, "innodb_flush_log_at_trx_commit=1")
	url := replica.URL()
	feedsBack(t, "mysql-replica")
	byHand(t, "warning mysql-replica", "connect to the primary", time.Minute, func() driver.Backend {
		return open(t, url).Backend
	}, func() { url = primary.URL() })
	finds(t, open(t, url).Backend, time.Minute)
}

// TestSubscriberOfPostgres: a program's URL names a server that gets the tables of locks by logical replication.
func TestSubscriberOfPostgres(t *testing.T) {
	t.Parallel()
	settings := testserver.Config("wal_level = logical", "max_wal_senders = 4", "max_replication_slots = 4",
		"idle_in_transaction_session_timeout = '10min'", "fsync = on")
	publisher, subscriber := testserver.Postgres(t, settings), testserver.Postgres(t, settings)
	for _, s := range []*testserver.Server{publisher, subscriber} {
		finds(t, open(t, s.URL()).Backend, time.Minute) // the tables are there
	}
	_, onPublisher := database(t, publisher.URL())
	_, onSubscriber := database(t, subscriber.URL())
	onPublisher("CREATE PUBLICATION everything FOR ALL TABLES")
	onSubscriber("TRUNCATE fencelock_meta", fmt.Sprintf("CREATE SUBSCRIPTION copy CONNECTION '%s' PUBLICATION everything",
		publisher.URL()))
	t.Cleanup(func() { onSubscriber("DROP SUBSCRIPTION copy") })
	url := subscriber.URL()
	feedsBack(t, "postgres-subscriber")
	byHand(t, "warning postgres-subscriber", "connect to the publisher", time.Minute, func() driver.Backend {
		return open(t, url).Backend
	}, func() { url = publisher.URL() })
}

// replicatedMariaDB starts two servers, of which the second follows the first.
func replicatedMariaDB(t *testing.T, ofReplica string) (primary, replica *testserver.Server) {
	t.Helper()
	primary = testserver.MariaDB(t, testserver.Config("log-bin=log", "server_id=1", "sync_binlog=1",
		"innodb_flush_log_at_trx_commit=1"))
	replica = testserver.MariaDB(t, testserver.Config("server_id=2", ofReplica))
	_, onPrimary := database(t, primary.URL())
	db, onReplica := database(t, replica.URL())
	_, port, _ := net.SplitHostPort(primary.Addr())
	onReplica(fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %s, MASTER_USER = 'root', "+
		"MASTER_USE_GTID = slave_pos", port), "START SLAVE")
	onPrimary("CREATE TABLE app_x (x INT)")
	until(t, "the replica follows", func() bool {
		var n int
		return db.QueryRow("SELECT COUNT(*) FROM app_x").Scan(&n) == nil
	})
	return primary, replica
}
