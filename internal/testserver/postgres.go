package testserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// postgresUser owns the database of the same name, which is what URL names.
const postgresUser = "postgres"

var postgres = kind{
	name:    "postgres",
	program: "postgres",
	install: "on Debian run: apt-get install postgresql; elsewhere see https://www.postgresql.org/download/",
	prepare: preparePostgres,
	args:    func(s *Server) []string { return []string{"-D", postgresData(s)} },
	ready:   postgresAnswers,
	url:     postgresURL,
	// A kill would leave its shared memory to the system.
	quit:  syscall.SIGQUIT,
	keeps: true,
	users: []string{"postgres", "nobody"},
}

// Postgres starts a PostgreSQL server for a test. Persist is always on.
var Postgres = forTest(always(postgres))

// StartPostgres starts a PostgreSQL server in a folder.
var StartPostgres = inFolder(always(postgres))

// PostgresStandby starts a standby of primary for a test. It follows the server at source: the
// primary itself, or a proxy before it. The primary needs wal_level = replica and
// max_wal_senders.
func PostgresStandby(tb TB, primary *Server, source string, opts ...Option) *Server {
	tb.Helper()
	dir := tb.TempDir()
	host, port, _ := net.SplitHostPort(primary.Addr())
	copied := exec.Command(program("pg_basebackup"), "-h", host, "-p", port, "-U", postgresUser,
		"-D", filepath.Join(dir, "data"), "--checkpoint=fast", "--wal-method=stream",
		"--write-recovery-conf", "--no-sync")
	if out, err := copied.CombinedOutput(); err != nil {
		tb.Fatalf("copying the primary: %v\n%s", err, out)
	}
	host, port, _ = net.SplitHostPort(source)
	follow := Config("wal_level = replica", "max_wal_senders = 4", "hot_standby = on",
		"primary_conninfo = 'host="+host+" port="+port+" user="+postgresUser+"'")
	s, err := StartPostgres(context.Background(), dir, append([]Option{follow}, opts...)...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return attach(tb, s)
}

func postgresData(s *Server) string { return filepath.Join(s.dir, "data") }

func postgresURL(s *Server) string {
	u := s.address("postgres", postgresUser, "/"+postgresUser)
	u.RawQuery = "sslmode=disable"
	return u.String()
}

// preparePostgres makes the data folder the first time, and writes the configuration.
// Nothing is synced: what a process wrote outlives it.
func preparePostgres(s *Server) error {
	data := postgresData(s)
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); err == nil {
		if err := postgresGone(data); err != nil {
			return err
		}
	} else if err := initPostgres(s, data); err != nil {
		return err
	}
	return s.writeConfig(filepath.Join("data", "postgresql.auto.conf"),
		"listen_addresses = '127.0.0.1'",
		fmt.Sprintf("port = %d", s.port),
		"unix_socket_directories = ''",
		"fsync = off",
		"shared_buffers = 16MB",
		"max_connections = 300",
		"max_wal_senders = 0",
		"wal_level = minimal",
	)
}

func initPostgres(s *Server, data string) error {
	args := []string{"-D", data, "-U", postgresUser, "--encoding=UTF8", "--locale=C", "--no-sync", "--wal-segsize=1"}
	if s.opts.password == "" {
		args = append(args, "--auth=trust")
	} else {
		file := filepath.Join(s.dir, "password")
		if err := os.WriteFile(file, []byte(s.opts.password+"\n"), 0o600); err != nil {
			return err
		}
		args = append(args, "--auth=scram-sha-256", "--pwfile="+file)
	}
	return s.install(program("initdb"), args...)
}

// postgresGone kills the processes that served data, and waits until they have ended: no
// new server starts before.
func postgresGone(data string) error {
	if real, err := filepath.EvalSymlinks(data); err == nil {
		data = real
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		gone := true
		links, _ := filepath.Glob("/proc/[0-9]*/cwd")
		for _, l := range links {
			if cwd, err := os.Readlink(l); err != nil || cwd != data {
				continue
			}
			gone = false
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(l)))
			if p, gone := os.FindProcess(pid); err == nil && gone == nil {
				_ = p.Kill() // it may just have ended
			}
		}
		if gone {
			return nil
		}
	}
	return fmt.Errorf("the processes of an earlier server in %s do not end", data)
}

// postgresAnswers begins a session, as far as the server's answer: it asks for a password,
// or lets us in, or says why it does not yet.
func postgresAnswers(ctx context.Context, s *Server) error {
	const version = 3 << 16
	body := "user\x00" + postgresUser + "\x00database\x00" + postgresUser + "\x00\x00"
	head := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	head = binary.BigEndian.AppendUint32(head, version)
	answer, err := s.exchange(ctx, string(head)+body, beginning)
	switch {
	case err != nil:
		return err
	case answer[0] == 'R':
		return nil
	case answer[0] == 'E':
		return errors.New(strings.ReplaceAll(strings.Trim(answer[5:], "\x00"), "\x00", ", "))
	}
	return fmt.Errorf("an unknown answer %q", answer)
}

// PgBouncer starts a PgBouncer in transaction pooling in front of a PostgreSQL server,
// and stops it when the test ends. It lets everybody in; Config adds lines to its
// section [pgbouncer].
func PgBouncer(tb TB, behind *Server, opts ...Option) *Server {
	tb.Helper()
	return forTest(always(pgBouncer(behind)))(tb, opts...)
}

// StartPgBouncer is PgBouncer for commands: dir must exist, and the caller stops it.
func StartPgBouncer(ctx context.Context, dir string, behind *Server, opts ...Option) (*Server, error) {
	return start(ctx, pgBouncer(behind), dir, opts)
}

func pgBouncer(behind *Server) kind {
	return kind{
		name:    "pgbouncer",
		program: "pgbouncer",
		install: "on Debian run: apt-get install pgbouncer; elsewhere see https://www.pgbouncer.org/install.html",
		prepare: func(s *Server) error { return writePgBouncerConfig(s, behind) },
		args:    func(s *Server) []string { return []string{filepath.Join(s.dir, "pgbouncer.ini")} },
		ready:   postgresAnswers,
		url:     postgresURL,
		users:   []string{"postgres", "nobody"},
	}
}

// PgBouncerKeepsStatements reports whether the PgBouncer of this machine can tell the prepared
// statements of its clients apart: 1.21 is the first that does, if max_prepared_statements says so.
func PgBouncerKeepsStatements(tb TB) bool {
	tb.Helper()
	out, err := exec.Command(program("pgbouncer"), "--version").Output()
	var major, minor int
	if err == nil {
		_, err = fmt.Sscanf(string(out), "PgBouncer %d.%d", &major, &minor)
	}
	if err != nil {
		tb.Fatalf("pgbouncer --version: %q, %v", out, err)
	}
	return major > 1 || minor >= 21
}

func writePgBouncerConfig(s, behind *Server) error {
	target := fmt.Sprintf("* = host=127.0.0.1 port=%d user=%s", behind.port, postgresUser)
	if behind.opts.password != "" {
		target += " password='" + strings.ReplaceAll(behind.opts.password, "'", "''") + "'"
	}
	return s.writeConfig("pgbouncer.ini",
		"[databases]",
		target,
		"[pgbouncer]",
		"listen_addr = 127.0.0.1",
		fmt.Sprintf("listen_port = %d", s.port),
		"unix_socket_dir =",
		"auth_type = any",
		"pool_mode = transaction",
		"max_client_conn = 500",
		"default_pool_size = 20",
	)
}

// Pgpool starts a Pgpool-II in front of a primary and its standby for a test. It sends reads to the
// standby, and lets everybody in. It needs trust at the servers.
func Pgpool(tb TB, primary, standby *Server, opts ...Option) *Server {
	tb.Helper()
	return forTest(always(pgpool(primary, standby)))(tb, opts...)
}

func pgpool(primary, standby *Server) kind {
	return kind{
		name:    "pgpool",
		program: "pgpool",
		install: "on Debian run: apt-get install pgpool2; elsewhere see https://www.pgpool.net/",
		prepare: func(s *Server) error {
			return s.writeConfig("pgpool.conf",
				"backend_clustering_mode = 'streaming_replication'",
				"listen_addresses = '127.0.0.1'",
				fmt.Sprintf("port = %d", s.port),
				"pcp_listen_addresses = ''",
				fmt.Sprintf("pcp_port = %d", s.port), // not listened on
				fmt.Sprintf("socket_dir = '%s'", s.dir),
				fmt.Sprintf("pcp_socket_dir = '%s'", s.dir),
				"backend_hostname0 = '127.0.0.1'",
				fmt.Sprintf("backend_port0 = %d", primary.port),
				"backend_weight0 = 0",
				"backend_hostname1 = '127.0.0.1'",
				fmt.Sprintf("backend_port1 = %d", standby.port),
				"backend_weight1 = 1",
				"load_balance_mode = on",
				"delay_threshold = 0",
				"sr_check_period = 0",
				"sr_check_user = '"+postgresUser+"'",
				"health_check_period = 0",
				"failover_on_backend_error = off",
				"enable_pool_hba = off",
				"allow_clear_text_frontend_auth = off",
				"num_init_children = 24",
				"max_pool = 1",
				fmt.Sprintf("pid_file_name = '%s'", filepath.Join(s.dir, "pgpool.pid")),
				fmt.Sprintf("logdir = '%s'", s.dir),
				fmt.Sprintf("memqcache_oiddir = '%s'", s.dir),
			)
		},
		args: func(s *Server) []string {
			file := func(name string) string { return filepath.Join(s.dir, name) }
			return []string{"-n", "-f", file("pgpool.conf"), "-a", file("pool_hba.conf"), "-F", file("pcp.conf")}
		},
		ready: postgresAnswers,
		url:   postgresURL,
		users: []string{"postgres", "nobody"},
	}
}
