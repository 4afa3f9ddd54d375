package testserver

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

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
