//go:build unix

package storeurl_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
)

// locks takes a lock in the store of a URL, and gives it back.
func locks(t *testing.T, raw string) {
	t.Helper()
	s, err := storeurl.Open(t.Context(), raw)
	if err != nil {
		t.Errorf("%s: %v", raw, err)
		return
	}
	defer s.Close()
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("%s: %v", raw, err)
		return
	}
	lease, err := testclient.New(t, s.Backend, nil).Lock(t.Context(), "k")
	if err == nil {
		err = lease.Release(t.Context())
	}
	if err != nil {
		t.Errorf("%s: %v", raw, err)
	}
}

// socketDir is a folder with a short path, in which every user may make a socket.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fl-")
	if err == nil {
		err = os.Chmod(dir, 0o777)
	}
	steps.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestServersOnUnixSockets(t *testing.T) {
	t.Parallel()
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		dir := socketDir(t)
		s := testserver.Postgres(t, testserver.Config("unix_socket_directories = '"+dir+"'"))
		_, port, _ := net.SplitHostPort(s.Addr())
		for _, form := range []string{
			"postgres:///postgres?host=%s&port=%s&user=postgres",
			"postgres://postgres@/postgres?host=%s&port=%s&schema=public&pgbouncer=true&connection_limit=1",
			"postgres://postgres@" + url.PathEscape(dir) + ":" + port + "/postgres",
		} {
			raw := form
			if strings.Contains(form, "%s") {
				raw = fmt.Sprintf(form, dir, port)
			}
			locks(t, raw)
		}
	})
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		socket := filepath.Join(socketDir(t), "m.sock")
		testserver.MariaDB(t, testserver.Config("socket="+socket))
		locks(t, "mysql://root@localhost/locks?socket="+socket)
		locks(t, "mysql://root@/locks?unix_socket="+socket+"&connection_limit=5")
		locks(t, "root@unix("+socket+")/locks?timeout=20s")
	})
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		socket := filepath.Join(socketDir(t), "r.sock")
		testserver.Redis(t, testserver.Password("s3cret"), testserver.Config("unixsocket "+socket, "unixsocketperm 777"))
		locks(t, "unix://:s3cret@"+socket+"?db=3")
		locks(t, "redis+socket://:s3cret@"+socket)
	})
}

// TestURLOfAllPostgresServersFindsThePrimary: doctor tells who is connected to a standby to write
// all hosts.
func TestURLOfAllPostgresServersFindsThePrimary(t *testing.T) {
	t.Parallel()
	primary := testserver.Postgres(t, testserver.Config("wal_level = replica", "max_wal_senders = 4"))
	standby := testserver.PostgresStandby(t, primary, primary.Addr())
	for _, hosts := range []string{standby.Addr() + "," + primary.Addr(), primary.Addr() + "," + standby.Addr()} {
		locks(t, "postgres://postgres@"+hosts+"/postgres?sslmode=disable")
	}
}
