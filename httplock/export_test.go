package httplock

import (
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/httplock/internal/sse"
)

// SetBodyTimeout makes bodies that arrive slowly be refused earlier, during a test.
func SetBodyTimeout(t *testing.T, d time.Duration) {
	before := bodyTimeout
	bodyTimeout = d
	t.Cleanup(func() { bodyTimeout = before })
}

// Slugs are the types of problems.
func Slugs() []string {
	var all []string
	for slug := range problems {
		all = append(all, slug)
	}
	slices.Sort(all)
	return all
}

// Paths are the paths of a Server and their methods.
func (s *Server) Paths() map[string]string {
	all := map[string]string{}
	for path, r := range s.routes {
		all[path] = r.method
	}
	return all
}

// SetWriteTimeout lets clients that do not read go earlier, during a test.
func SetWriteTimeout(t *testing.T, d time.Duration) {
	chunks, events := chunkTimeout, sse.WriteTimeout
	chunkTimeout, sse.WriteTimeout = d, d
	t.Cleanup(func() { chunkTimeout, sse.WriteTimeout = chunks, events })
}
