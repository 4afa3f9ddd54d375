//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/testserver"
)

// What a user does first, on Redis with replicas: run, look, try, once; and what is
// wrong with a URL or a password is said in one line without it.
func TestRedisGroups(t *testing.T) {
	type wrong struct {
		url, password string
		code          int
		line          string
	}
	for name, start := range map[string]func(t *testing.T) (url string, wrongs []wrong){
		"sentinel": func(t *testing.T) (string, []wrong) {
			g := testserver.RedisSentinel(t, testserver.Password("s3cr3t/#"))
			hosts := "127.0.0.1:1," + strings.Join(g.Addrs(), ",")
			return "redis+sentinel://" + hosts + "/" + g.Name, []wrong{
				{"redis+sentinel://" + hosts + "/other", "s3cr3t/#", exitConfig, "know no master of that name"},
				{"redis+sentinel://" + hosts + "/" + g.Name, "wr0ng", exitConfig, "refuses the user or the password"},
				{"redis+sentinel://" + hosts + "/" + g.Name, "", exitConfig, "wants a password"},
				{"redis+sentinel://" + hosts, "s3cr3t/#", exitConfig, "what the sentinels call the master"},
				{"redis+sentinel://" + hosts + "/" + g.Name + "/s3cr3t", "", exitConfig, "number of a database"},
				{"redis+sentinel://a,,b/m", "", exitConfig, "a comma too many"},
				{"redis+sentinel://127.0.0.1:1/m", "s3cr3t/#", exitUnavailable, "redis+sentinel 127.0.0.1:1/m does not answer"},
			}
		},
		"cluster": func(t *testing.T) (string, []wrong) {
			g := testserver.RedisCluster(t, testserver.Password("s3cr3t/#"))
			hosts := "127.0.0.1:1," + strings.Join(g.Addrs()[:2], ",")
			single := testserver.Redis(t)
			return "redis+cluster://" + hosts, []wrong{
				{"redis+cluster://" + strings.Join(g.Addrs(), ","), "wr0ng", exitConfig, "refuses the user or the password"},
				{"redis+cluster://" + strings.Join(g.Addrs(), ","), "", exitConfig, "wants a password"},
				{"redis+cluster://" + single.Addr(), "", exitConfig, "is no Cluster"},
				{"redis+cluster://" + hosts + "/1", "s3cr3t/#", exitConfig, "has no databases"},
				{"redis+cluster://,", "", exitConfig, "no host"},
				{"redis+cluster://127.0.0.1:1", "s3cr3t/#", exitUnavailable, "redis+cluster 127.0.0.1:1 does not answer"},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			url, wrongs := start(t)
			t.Setenv(envPassword, "s3cr3t/#")
			s := newStage(t, url)
			if out := s.must("run", "a name", "--", "env"); !strings.Contains(out, "FENCELOCK_TOKEN=") {
				t.Errorf("the command has no token:\n%s", out)
			} else if strings.Contains(out, "s3cr3t") {
				t.Errorf("the command is told the password:\n%s", out)
			}
			holder := s.start("fencelock", "run", "--ttl", "3", "nightly", "--", "sleep", "60")
			eventually(t, "the lock is held", func() bool {
				return strings.Contains(s.must("ls"), "nightly")
			})
			p := s.wants(exitNotAcquired, "run", "-n", "nightly", "--", "touch", "ran")
			p.wantLine(`"nightly" was not acquired`)
			holder.signal("TERM")
			holder.wait()
			s.must("once", "daily", "--slot", "day", "--", "true")
			s.must("once", "daily", "--slot", "day", "--", "touch", "ran")
			if s.must("ls") != "" {
				t.Errorf("locks are left:\n%s", s.must("ls"))
			}
			if code, _ := s.run("ls", "ran"); code == 0 {
				t.Error("a command ran that should not have")
			}
			for _, w := range wrongs {
				s := newStage(t, w.url)
				t.Setenv(envPassword, w.password)
				p := s.wants(w.code, "run", "n", "--", "true")
				p.wantLine(w.line)
				for _, secret := range []string{"s3cr3t", "wr0ng"} {
					if strings.Contains(p.err.String(), secret) {
						t.Errorf("the password is told: %s", p.err.String())
					}
				}
			}
		})
	}
}
