package testserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// PgBouncer starts a PgBouncer in transaction pooling in front of a PostgreSQL server,
// and stops it when the test ends. A missing pgbouncer fails the test. It lets everybody
// in; Config adds lines to its section [pgbouncer].
func PgBouncer(tb TB, behind *Server, opts ...Option) *Server {
	tb.Helper()
	s, err := StartPgBouncer(context.Background(), tb.TempDir(), behind, opts...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return attach(tb, s)
}

// StartPgBouncer is PgBouncer for commands: dir must exist, and the caller stops it.
func StartPgBouncer(ctx context.Context, dir string, behind *Server, opts ...Option) (*Server, error) {
	return start(ctx, kind{
		name:    "pgbouncer",
		program: pgBouncerProgram(),
		install: "on Debian run: apt-get install pgbouncer; elsewhere see https://www.pgbouncer.org/install.html",
		prepare: func(s *Server) error { return writePgBouncerConfig(s, behind) },
		args:    func(s *Server) []string { return []string{filepath.Join(s.dir, "pgbouncer.ini")} },
		ready:   postgresAnswers,
		url:     func(s *Server) string { return postgresURL(s.Addr(), "") },
		users:   []string{"postgres", "nobody"},
	}, dir, opts)
}

func pgBouncerProgram() string {
	return program("pgbouncer", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin")
}

// PgBouncerKeepsStatements reports whether the PgBouncer of this machine can tell the prepared
// statements of its clients apart: 1.21 is the first that does, if max_prepared_statements says so.
func PgBouncerKeepsStatements(tb TB) bool {
	tb.Helper()
	out, err := exec.Command(pgBouncerProgram(), "--version").Output()
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
	lines := []string{
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
	}
	lines = append(lines, s.opts.config...)
	return os.WriteFile(filepath.Join(s.dir, "pgbouncer.ini"), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}
