package testserver

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMariaDBGreetsAndKeepsItsPlaceAfterARestart(t *testing.T) {
	var s *Server
	t.Run("while the test runs", func(t *testing.T) {
		s = MariaDB(t, Password(`it's a "secret"`))
		addr, pid := s.Addr(), s.Pid()
		if want := "mysql://root:it%27s%20a%20%22secret%22@" + addr + "/locks"; s.URL() != want {
			t.Errorf("URL() = %q, want %q", s.URL(), want)
		}
		check(t, s.Kill())
		if err := mariadbGreets(t.Context(), s); err == nil {
			t.Error("a killed server greets")
		}
		check(t, s.Restart())
		check(t, mariadbGreets(t.Context(), s))
		if s.Addr() != addr || s.Pid() == pid {
			t.Errorf("restarted as process %d on %s, was %d on %s", s.Pid(), s.Addr(), pid, addr)
		}
		if _, err := os.Stat(filepath.Join(s.Dir(), "data", "locks")); err != nil {
			t.Errorf("the database was not made: %v", err)
		}
	})
	if c, err := net.Dial("tcp", s.Addr()); err == nil {
		c.Close()
		t.Error("the server still listens after its test ended")
	}
}

func TestABadMariaDBConfigurationIsToldWithTheServersOwnWords(t *testing.T) {
	_, err := StartMariaDB(context.Background(), t.TempDir(), Config("nonsense=yes"))
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("the error does not show what the server printed: %v", err)
	}
}
