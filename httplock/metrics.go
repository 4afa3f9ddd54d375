package httplock

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed openapi.json
var openapiDocument string

func (s *Server) openapi(*call) (any, error) { return text{"application/json", openapiDocument}, nil }

// meter counts the answers of a Server.
type meter struct {
	mu     sync.Mutex
	counts map[answerKind]*timing
}

type answerKind struct {
	path   string
	status int
}

type timing struct {
	n    uint64
	took time.Duration
}

func (m *meter) init() { m.counts = map[answerKind]*timing{} }

func (m *meter) count(path string, status int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := answerKind{path, status}
	if m.counts[k] == nil {
		m.counts[k] = &timing{}
	}
	m.counts[k].n++
	m.counts[k].took += took
}

// metrics is the state of the Server in the text format of Prometheus.
func (s *Server) metrics(c *call) (any, error) {
	if !c.who.can(verbLook) {
		return nil, c.who.may(verbLook, "")
	}
	var b strings.Builder
	gauge := func(name, help string, value int) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n%s %d\n", name, help, name, name, value)
	}
	gauge("fencelock_http_waiting", "Claims that wait through this server.", s.waits.len())
	gauge("fencelock_http_held", "Leases granted here that have neither been released here nor run out.", s.held.len())
	gauge("fencelock_http_kept", "Leases that this server keeps for its clients.", s.kept.len())
	gauge("fencelock_http_viewers", "Streams of events.", int(s.viewers.Load()))
	drains := 0
	if s.draining.Err() != nil {
		drains = 1
	}
	gauge("fencelock_http_draining", "1 once the server grants nothing any more.", drains)
	s.meter.write(&b)
	return text{"text/plain; version=0.0.4; charset=utf-8", b.String()}, nil
}

func (m *meter) write(b *strings.Builder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kinds := make([]answerKind, 0, len(m.counts))
	for k := range m.counts {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b answerKind) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.status, b.status))
	})
	const name = "fencelock_http_request_duration_seconds"
	fmt.Fprintf(b, "# HELP %s Time to the answer, the waiting in line included.\n# TYPE %s summary\n", name, name)
	for _, k := range kinds {
		labels := fmt.Sprintf("{path=%q,code=\"%d\"}", k.path, k.status)
		sum, n := m.counts[k].took.Seconds(), m.counts[k].n
		fmt.Fprintf(b, "%s_sum%s %g\n%s_count%s %d\n", name, labels, sum, name, labels, n)
	}
}
