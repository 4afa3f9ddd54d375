package bench

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/internal/testserver"
)

// stats are the counters of a Redis server at one moment.
type stats struct {
	calls map[string]int64 // of each command, be it by a client or by a script
	cpu   float64          // seconds that its main thread has used, also for the network
}

// asked is what clients have cost the server between two moments.
type asked struct {
	requests float64
	cpu      float64 // seconds
}

// scripts are the commands that run scripts. No script calls them.
var scripts = []string{"eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"}

// readStats asks the server. Its own question is none of the commands counted.
func readStats(s *testserver.Server) (stats, error) {
	now := stats{calls: map[string]int64{}}
	for _, section := range []string{"commandstats", "cpu"} {
		text, err := s.Ask("INFO", section)
		if err != nil {
			return now, fmt.Errorf("asking the server for its counters: %w", err)
		}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			command, known := strings.CutPrefix(name, "cmdstat_")
			switch {
			case known:
				calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
				now.calls[command], err = strconv.ParseInt(calls, 10, 64)
			case strings.HasPrefix(name, "used_cpu_") && strings.HasSuffix(name, "_main_thread"):
				var part float64
				part, err = strconv.ParseFloat(value, 64)
				now.cpu += part
			}
			if err != nil {
				return now, fmt.Errorf("the server said %q: %w", strings.TrimSpace(line), err)
			}
		}
	}
	return now, nil
}

// since says what clients have asked for: scripts, and the commands in direct. What
// scripts call is in neither.
func (s stats) since(before stats, direct []string) asked {
	a := asked{cpu: s.cpu - before.cpu}
	for _, names := range [][]string{scripts, direct} {
		for _, name := range names {
			a.requests += float64(s.calls[name] - before.calls[name])
		}
	}
	return a
}

// version is what the server says of itself.
func version(s *testserver.Server) string {
	text, err := s.Ask("INFO", "server")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:"); ok {
			return v
		}
	}
	return "unknown"
}
