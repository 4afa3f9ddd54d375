package testserver

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestPostgresAnswersAndKeepsItsPlaceAfterARestart(t *testing.T) {
	var s, front *Server
	t.Run("while the test runs", func(t *testing.T) {
		s = Postgres(t, Password(`it's a "secret"`))
		addr, pid := s.Addr(), s.Pid()
		if want := "postgres://postgres:it%27s%20a%20%22secret%22@" + addr + "/postgres?sslmode=disable"; s.URL() != want {
			t.Errorf("URL() = %q, want %q", s.URL(), want)
		}
		front = PgBouncer(t, s)
		if want := "postgres://postgres@" + front.Addr() + "/postgres?sslmode=disable"; front.URL() != want {
			t.Errorf("URL() = %q, want %q", front.URL(), want)
		}
		check(t, s.Kill())
		if err := postgresAnswers(t.Context(), s); err == nil {
			t.Error("a killed server answers")
		}
		check(t, s.Restart())
		check(t, postgresAnswers(t.Context(), s))
		if s.Addr() != addr || s.Pid() == pid {
			t.Errorf("restarted as process %d on %s, was %d on %s", s.Pid(), s.Addr(), pid, addr)
		}
		check(t, postgresAnswers(t.Context(), front))
	})
	for _, s := range []*Server{s, front} {
		if c, err := net.Dial("tcp", s.Addr()); err == nil {
			c.Close()
			t.Errorf("%s still listens after its test ended", s.kind.name)
		}
	}
}

// TestStoppedPostgresLeavesNoSharedMemory looks for what a killed server leaves to the
// system, which has room for some thousand of that, and then no server starts any more.
func TestStoppedPostgresLeavesNoSharedMemory(t *testing.T) {
	kept := func(id string) bool {
		out, err := exec.Command("ipcs", "-m").Output()
		if err != nil {
			t.Fatalf("ipcs: %v", err)
		}
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) > 1 && f[1] == id {
				return true
			}
		}
		return false
	}
	var id string
	t.Run("while the test runs", func(t *testing.T) {
		s := Postgres(t)
		text, err := os.ReadFile(filepath.Join(postgresData(s), "postmaster.pid"))
		check(t, err)
		lines := strings.Split(string(text), "\n")
		id = strings.Fields(lines[6])[1] // the key and the id of its shared memory
		if !kept(id) {
			t.Errorf("shared memory %s of a running server is not there", id)
		}
	})
	if kept(id) {
		t.Errorf("the system keeps the shared memory %s of a server that was stopped", id)
	}
}
