package testserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
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
	url:     func(s *Server) string { return postgresURL(s.Addr(), s.opts.password) },
	// A kill would leave its shared memory to the system.
	quit:  syscall.SIGQUIT,
	users: []string{"postgres", "nobody"},
}

// Postgres starts a PostgreSQL server for a test and stops it when the test ends. A
// missing PostgreSQL fails the test. What the server has acknowledged is there again
// after Kill and Restart, as long as the machine itself runs on.
func Postgres(tb TB, opts ...Option) *Server {
	tb.Helper()
	s, err := StartPostgres(context.Background(), tb.TempDir(), opts...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return attach(tb, s)
}

// StartPostgres starts a PostgreSQL server in dir, which must exist and be empty or left
// by an earlier one. The caller stops it.
func StartPostgres(ctx context.Context, dir string, opts ...Option) (*Server, error) {
	k := postgres
	k.program = postgresProgram(k.program)
	return start(ctx, k, dir, opts)
}

// postgresProgram looks a program up where packages put it, too: Debian keeps several
// versions side by side, and none in PATH. The newest is taken.
func postgresProgram(name string) string {
	folders, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	newest, best := "", -1
	for _, f := range folders {
		if v, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil && v > best {
			newest, best = f, v
		}
	}
	return program(name, newest, "/usr/pgsql/bin", "/usr/local/bin", "/opt/homebrew/bin")
}

func postgresData(s *Server) string { return filepath.Join(s.dir, "data") }

func postgresURL(addr, password string) string {
	u := url.URL{Scheme: "postgres", Host: addr, User: url.User(postgresUser), Path: "/" + postgresUser, RawQuery: "sslmode=disable"}
	if password != "" {
		u.User = url.UserPassword(postgresUser, password)
	}
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
	lines := []string{
		"listen_addresses = '127.0.0.1'",
		fmt.Sprintf("port = %d", s.port),
		"unix_socket_directories = ''",
		"fsync = off",
		"shared_buffers = 16MB",
		"max_connections = 300",
		"max_wal_senders = 0",
		"wal_level = minimal",
	}
	lines = append(lines, s.opts.config...)
	return os.WriteFile(filepath.Join(data, "postgresql.auto.conf"), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
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
	cmd := exec.Command(postgresProgram("initdb"), args...)
	cmd.Dir = s.dir
	if err := runAs(cmd, s.kind.users, s.dir); err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w; it says:\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}

// postgresGone waits until the processes have ended that served data. When the first of
// them is killed the others end by themselves, but not at once, and no new server starts
// before. Where the system shows processes, they are killed as well.
func postgresGone(data string) error {
	if real, err := filepath.EvalSymlinks(data); err == nil {
		data = real
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		left := 0
		links, _ := filepath.Glob("/proc/[0-9]*/cwd")
		for _, l := range links {
			if cwd, err := os.Readlink(l); err != nil || cwd != data {
				continue
			}
			left++
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(l))); err == nil {
				if p, err := os.FindProcess(pid); err == nil {
					_ = p.Kill() // it may just have ended
				}
			}
		}
		if left == 0 {
			return nil
		}
	}
	return fmt.Errorf("the processes of an earlier server in %s do not end", data)
}

// postgresAnswers begins a session, as far as the server's answer: it asks for a password,
// or lets us in, or says why it does not yet.
func postgresAnswers(ctx context.Context, s *Server) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	defer c.Close()
	if end, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(end); err != nil {
			return err
		}
	}
	const version = 3 << 16
	body := "user\x00" + postgresUser + "\x00database\x00" + postgresUser + "\x00\x00"
	hello := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	hello = binary.BigEndian.AppendUint32(hello, version)
	if _, err := c.Write(append(hello, body...)); err != nil {
		return err
	}
	var head [5]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	switch head[0] {
	case 'R':
		return nil
	case 'E':
		text := make([]byte, min(binary.BigEndian.Uint32(head[1:]), 4096)-4)
		if _, err := io.ReadFull(c, text); err != nil {
			return err
		}
		return errors.New(strings.Join(strings.Split(strings.Trim(string(text), "\x00"), "\x00"), ", "))
	}
	return fmt.Errorf("an unknown answer %q", head[0])
}
