//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/testserver"
)

// A lock that acquire took is renewed, checked and released by its handle, from other
// processes.
func TestAcquireOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	for _, s := range []*stage{sqliteStage(t), newStage(t, server.URL())} {
		code, p := s.run("fencelock", "acquire", "n", "--ttl", "1m", "--note", "deploy")
		handle := strings.TrimSpace(p.out.String())
		if code != 0 || !strings.HasPrefix(handle, "fl1.") {
			t.Fatalf("exit %d: %s%s", code, handle, p.err.String())
		}
		eventually(t, "a renewal prolongs the lease", func() bool {
			before := holderOfN(t, s).LeftMS
			s.expect(0, "fencelock", "renew", handle)
			return holderOfN(t, s).LeftMS > before
		})
		s.expect(exitNotAcquired, "fencelock", "run", "-n", "n", "--", "true")
		_, p = s.run("fencelock", "check", handle)
		if out := p.out.String(); !strings.HasPrefix(out, `"n" is held with token `) {
			t.Errorf("check says %q", out)
		}
		s.expect(0, "fencelock", "release", handle)
		for _, verb := range []string{"check", "renew", "release"} {
			s.expect(exitLost, "fencelock", verb, handle)
		}
		s.expect(0, "fencelock", "run", "-n", "n", "--", "true")

		_, p = s.run("fencelock", "acquire", "n", "--ttl", "1s")
		handle = strings.TrimSpace(p.out.String())
		eventually(t, "the lease that nobody renews is over", func() bool {
			code, _ := s.run("fencelock", "check", handle)
			return code == exitLost
		})
		s.expect(exitLost, "fencelock", "renew", handle)
	}
}

// expect runs a command, which must end with a code.
func (s *stage) expect(want int, args ...string) *proc {
	s.t.Helper()
	code, p := s.run(args[0], args[1:]...)
	if code != want {
		s.t.Errorf("%q: exit %d, want %d: %s", args, code, want, p.err.String())
	}
	return p
}

func TestHandleFileIsPrivateAndGoesWithItsLock(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	file := filepath.Join(t.TempDir(), "handle")
	s.expect(0, "fencelock", "acquire", "n", "--handle", file)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	s.expect(exitUsage, "fencelock", "acquire", "other", "--handle", file).wantLine("exists")
	s.expect(0, "fencelock", "check", "--handle", file)
	s.expect(0, "sh", "-c", "fencelock check --handle - <"+file)
	s.expect(0, "fencelock", "release", "--handle", file)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file of a released lock: %v", err)
	}
	s.expect(exitUsage, "fencelock", "release", "--handle", file)
	s.expect(exitUsage, "fencelock", "renew")
	s.expect(exitUsage, "fencelock", "renew", "nonsense")
	s.expect(exitUsage, "fencelock", "acquire", "n", "--handle", "-")
	missing := filepath.Join(t.TempDir(), "missing", "handle")
	s.expect(exitOutput, "fencelock", "acquire", "n", "--handle", missing)
	s.expect(0, "fencelock", "wait", "-w", "0", "n") // nobody has the handle, so nobody has the lock
}

// Of two shells that wait with acquire one gets the lock, then the other.
func TestAcquireWaitsInLine(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	first := strings.TrimSpace(s.expect(0, "fencelock", "acquire", "n").out.String())
	waits := s.start("fencelock", "acquire", "n", "-w", "120")
	eventually(t, "it waits", func() bool {
		return strings.Contains(s.expect(0, "fencelock", "ls").out.String(), "waits #1")
	})
	s.expect(0, "fencelock", "release", first)
	if code := waits.wait(); code != 0 {
		t.Errorf("exit %d: %s", code, waits.err.String())
	}
	s.expect(0, "fencelock", "release", strings.TrimSpace(waits.out.String()))
	s.expect(exitNotAcquired, "sh", "-c", fmt.Sprint("fencelock acquire n >h; fencelock acquire -n n; code=$?; ",
		"fencelock release --handle h; exit $code"))
}
