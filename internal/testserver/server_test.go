package testserver

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestRedisAnswersAndEndsWithItsTest(t *testing.T) {
	var s *Server
	t.Run("while the test runs", func(t *testing.T) {
		s = Redis(t)
		if got := ask(t, s, "PING"); got != "PONG" {
			t.Errorf("PING answered %q", got)
		}
		if want := "redis://" + s.Addr(); s.URL() != want {
			t.Errorf("URL() = %q, want %q", s.URL(), want)
		}
	})
	if c, err := net.Dial("tcp", s.Addr()); err == nil {
		c.Close()
		t.Error("the server still listens after its test ended")
	}
}

func TestRestartKeepsThePortAndWhatIsPersistent(t *testing.T) {
	for _, persist := range []bool{false, true} {
		t.Run(fmt.Sprintf("persist %v", persist), func(t *testing.T) {
			s := Redis(t, Persist(persist))
			addr, pid := s.Addr(), s.Pid()
			ask(t, s, "SET", "k", "v")
			check(t, s.Kill())
			if s.Pid() != 0 {
				t.Error("a killed server has a process id")
			}
			check(t, s.Restart())
			if s.Addr() != addr || s.Pid() == pid {
				t.Errorf("restarted as process %d on %s, was %d on %s", s.Pid(), s.Addr(), pid, addr)
			}
			want := ""
			if persist {
				want = "v"
			}
			if got := ask(t, s, "GET", "k"); got != want {
				t.Errorf("after a restart k is %q, want %q", got, want)
			}
		})
	}
}

func TestAPausedServerAcceptsAndDoesNotAnswer(t *testing.T) {
	s := Redis(t)
	check(t, s.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.ask(ctx, "PING"); err == nil {
		t.Error("a paused server answered")
	}
	check(t, s.Continue())
	if got := ask(t, s, "PING"); got != "PONG" {
		t.Errorf("PING answered %q after Continue", got)
	}
}

func TestAPausedServerCanBeStopped(t *testing.T) {
	s := Redis(t)
	check(t, s.Pause())
	check(t, s.Stop())
	check(t, s.Stop())
}

func TestPasswordIsAskedAndGiven(t *testing.T) {
	s := Redis(t, Password(`p "w`), Config("maxmemory 50mb"))
	if got := ask(t, s, "CONFIG", "GET", "maxmemory"); !strings.Contains(got, strconv.Itoa(50<<20)) {
		t.Errorf("maxmemory is %q", got)
	}
	stranger := &Server{port: s.port}
	if _, err := stranger.Ask("GET", "k"); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("GET without the password: %v", err)
	}
}

func TestABadConfigurationIsToldWithTheServersOwnWords(t *testing.T) {
	_, err := StartRedis(t.Context(), t.TempDir(), Config("nonsense yes"))
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("the error does not show what the server printed: %v", err)
	}
}

func TestAMissingProgramSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := StartRedis(t.Context(), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Errorf("the error does not say what to install: %v", err)
	}
}

func ask(t *testing.T, s *Server, args ...string) string {
	t.Helper()
	got, err := s.Ask(args...)
	check(t, err)
	return got
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
