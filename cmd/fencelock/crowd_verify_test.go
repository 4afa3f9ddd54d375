//go:build verify && unix

package main

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/internal/testserver"
)

// TestHolderComesBackToAFullRedis: a dozen commands begin at the same time and wait, and have all connections that the
// server takes: some want one, the others want one more for messages. All connections of the holder break: none of those
// takes its last place before it renews.
func TestHolderComesBackToAFullRedis(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.Config("maxclients 12"))
	o, err := redis.ParseURL(server.URL())
	must(t, err)
	o.PoolSize, o.PipelinePoolSize = 1, -1
	test := redis.NewClient(o)
	defer test.Close()
	s := newStage(t, server.URL())
	holder := s.holds(untilTold, "--url", server.URL()+"?client_name=holder", "--ttl", "15s")
	held := func() (ids []string) {
		list, err := test.ClientList(t.Context()).Result()
		must(t, err)
		for line := range strings.Lines(list) {
			if id, rest, _ := strings.Cut(strings.TrimPrefix(line, "id="), " "); strings.Contains(rest, " name=holder ") {
				ids = append(ids, id)
			}
		}
		return ids
	}
	eventually(t, "the holder has a connection, and one for alarms", func() bool { return len(held()) == 2 })
	var crowd []*proc
	for range 12 {
		crowd = append(crowd, s.start("fencelock", "run", "-v", "-w", "600", "n", "--", "true"))
	}
	for _, p := range crowd {
		eventually(t, "it waits", func() bool {
			text := p.err.String()
			return strings.Contains(text, `waiting for "n"`) || strings.Contains(text, "asking again")
		})
	}
	ends := func() string {
		line, err := test.HGetAll(t.Context(), "fencelock:{n}").Result()
		must(t, err)
		for field, claim := range line {
			if strings.HasPrefix(field, "c:") {
				return claim[:strings.IndexByte(claim, ' ')]
			}
		}
		return ""
	}
	before := ends()
	eventually(t, "it has just renewed, so it needs no connection for five seconds", func() bool { return ends() != before })
	before = ends()
	for _, id := range held() {
		must(t, test.Do(t.Context(), "client", "kill", "id", id).Err())
	}
	eventually(t, "the holder is back", func() bool { return ends() != before || holder.ended() })
	s.touch("enough")
	holder.wantExit(0)
	for _, p := range crowd {
		p.wantExit(0)
	}
}
