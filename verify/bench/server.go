package bench

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/internal/testserver"
)

// stats are the counters of a Redis server at one moment: of each command how
// often it was called and how long that took, be it by a client or by a script.
type stats map[string]stat

type stat struct {
	calls int64
	µs    int64 // a script's time is all that it calls
}

// scripts are the commands that run scripts. No script calls them.
var scripts = []string{"eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"}

// readStats asks the server. Its own question is none of the commands counted.
func readStats(s *testserver.Server) (stats, error) {
	text, err := s.Ask("INFO", "commandstats")
	if err != nil {
		return nil, fmt.Errorf("asking the server for its counters: %w", err)
	}
	all := stats{}
	for line := range strings.Lines(text) {
		name, fields, ok := strings.Cut(strings.TrimSpace(line), ":")
		name, known := strings.CutPrefix(name, "cmdstat_")
		if !ok || !known {
			continue
		}
		var one stat
		for field := range strings.SplitSeq(fields, ",") {
			key, value, _ := strings.Cut(field, "=")
			n, _ := strconv.ParseInt(value, 10, 64)
			switch key {
			case "calls":
				one.calls = n
			case "usec":
				one.µs = n
			}
		}
		all[name] = one
	}
	return all, nil
}

// requests says what clients have asked for between two moments: scripts, and the
// commands in direct. What scripts call is in neither.
func (s stats) requests(before stats, direct []string) (sum stat) {
	for _, names := range [][]string{scripts, direct} {
		for _, name := range names {
			sum.calls += s[name].calls - before[name].calls
			sum.µs += s[name].µs - before[name].µs
		}
	}
	return sum
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
