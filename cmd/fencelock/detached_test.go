//go:build unix

package main

import (
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
		code, p := s.run("fencelock", "acquire", "n", "--ttl", "10m", "--note", "deploy")
		handle := strings.TrimSpace(p.out.String())
		if code != 0 || !strings.HasPrefix(handle, "fl1.") {
			t.Fatalf("exit %d: %s%s", code, handle, p.err.String())
		}
		eventually(t, "a renewal prolongs the lease", func() bool {
			before := holderOfN(s).LeftMS
			s.wants(0, "renew", handle)
			return holderOfN(s).LeftMS > before
		})
		s.wants(exitNotAcquired, "run", "-n", "n", "--", "true")
		_, p = s.run("fencelock", "check", handle)
		if out := p.out.String(); !strings.HasPrefix(out, `"n" is held with token `) {
			t.Errorf("check says %q", out)
		}
		s.wants(0, "release", handle)
		for _, verb := range []string{"check", "renew", "release"} {
			s.wants(exitLost, verb, handle)
		}
		s.wants(0, "run", "-n", "n", "--", "true")

		_, p = s.run("fencelock", "acquire", "n", "--ttl", "5s")
		handle = strings.TrimSpace(p.out.String())
		eventually(t, "the lease that nobody renews is over", func() bool {
			code, _ := s.run("fencelock", "check", handle)
			return code == exitLost
		})
		s.wants(exitLost, "renew", handle)
	}
}

func TestHandleFileIsPrivateAndGoesWithItsLock(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	file := filepath.Join(t.TempDir(), "handle")
	s.wants(0, "acquire", "n", "--handle", file)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	s.wants(exitUsage, "acquire", "other", "--handle", file).wantLine("exists")
	s.wants(0, "check", "--handle", file)
	s.start("sh", "-c", "fencelock check --handle - <"+file).wantExit(0)
	s.wants(0, "release", "--handle", file)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file of a released lock: %v", err)
	}
	s.wants(exitUsage, "release", "--handle", file)
	s.wants(exitUsage, "renew")
	s.wants(exitUsage, "renew", "nonsense")
	s.wants(exitUsage, "acquire", "n", "--handle", "-")
	missing := filepath.Join(t.TempDir(), "missing", "handle")
	s.wants(exitOutput, "acquire", "n", "--handle", missing)
	s.wants(0, "wait", "-w", "0", "n") // nobody has the handle, so nobody has the lock
}
