package modelchecking

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// search is one run of Spin: a model, with these macros, and how its verifier is built and called.
type search struct {
	model   string   // its file
	defines []string // macros of the model
	options []string // of the C compiler
	call    []string // options of the verifier
}

// result is what the verifier has printed.
type result struct {
	output string
	took   time.Duration
}

// safety searches for a failed assertion, and fewest for the shortest way to one, which is found
// in less time than an optimised verifier takes to compile.
func safety(model string, defines ...string) search {
	return search{model, defines, []string{"-DSAFETY", "-DNOREDUCE"}, []string{"-m1000000"}}
}

func fewest(model string, defines ...string) search {
	return search{model, defines, []string{"-O0", "-DSAFETY", "-DBFS"}, nil}
}

// backwards is s with the last choice tried first.
func backwards(s search) search {
	s.options = slices.Concat(s.options, []string{"-DREVERSE", "-DT_REVERSE"})
	return s
}

// deep is s with room for longer runs.
func deep(s search) search {
	s.call = []string{"-m12000000"}
	return s
}

// live searches for a fair run in which the formula does not hold.
func live(model, formula string, defines ...string) search {
	return search{model, defines, []string{"-DNFAIR=4"}, []string{"-m1000000", "-a", "-f", "-N", formula}}
}

// run makes the verifier and calls it once.
func (s search) run(t *testing.T) result {
	t.Helper()
	return s.build(t).run(t, s.call...)
}

// verifier is a program that searches, in a folder of its own.
type verifier string

// build makes the verifier.
func (s search) build(t *testing.T) verifier {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(s.model)
	steps.Must(t, err)
	steps.Must(t, os.WriteFile(filepath.Join(dir, s.model), text, 0o600))
	command(t, dir, "spin", slices.Concat([]string{"-a"}, s.defines, []string{s.model})...)
	command(t, dir, "gcc", slices.Concat([]string{"-O1", "-w", "-o", "pan"}, s.options, []string{"pan.c"})...)
	return verifier(dir)
}

func (v verifier) run(t *testing.T, call ...string) result {
	t.Helper()
	begun := time.Now()
	output := command(t, string(v), "nice", append([]string{"./pan"}, call...)...)
	return result{output, time.Since(begun)}
}

// command runs a program to its end and returns what it prints.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil && name != "nice" { // the exit code of a verifier says nothing
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

var (
	errorCount = regexp.MustCompile(`errors: (\d+)`)
	finding    = regexp.MustCompile(`(?m)^pan:\d+: (.*)$`)
	sizes      = regexp.MustCompile(`depth reached (\d+), errors|(\d+) states, stored|([\d.]+)\s+total actual memory usage`)
)

// problem says why the search has not shown that all is well, or "".
func (r result) problem() string {
	found := finding.FindStringSubmatch(r.output)
	count := errorCount.FindStringSubmatch(r.output)
	switch {
	case found != nil:
		return found[1]
	case count == nil:
		return "the verifier did not end its search"
	case count[1] != "0":
		return count[0]
	}
	for _, incomplete := range []string{"max search depth too small", "out of memory", "Search not completed", "hint:"} {
		if strings.Contains(r.output, incomplete) {
			return "the search is not complete: " + incomplete
		}
	}
	return ""
}

// states is how many the search has seen.
func (r result) states() string { return r.sizes()[1] }

// size says how large the search was.
func (r result) size() string {
	n := r.sizes()
	return fmt.Sprintf("%s states, depth %s, %s MB, %v", n[1], n[0], n[2], r.took.Round(10*time.Millisecond))
}

func (r result) sizes() map[int]string {
	n := map[int]string{}
	for _, m := range sizes.FindAllStringSubmatch(r.output, -1) {
		for i, value := range m[1:] {
			if value != "" {
				n[i] = value
			}
		}
	}
	return n
}

var (
	listed    = regexp.MustCompile(`(?m)^\s+state\s+(\d+) -.* (\S+\.pml:\d+) => `)
	unreached = regexp.MustCompile(`(?m)^\s+(\S+\.pml:\d+), state (\d+), "(.*)"$`)
)

// reach says for each line of a model whether a search has come to one of its statements.
type reach struct {
	mu    sync.Mutex
	lines map[string]bool
}

// cover adds what s comes to. Spin does not judge what is inside a d_step.
func (c *reach) cover(t *testing.T, s search) {
	t.Helper()
	s.defines = append(slices.Clone(s.defines), "-Dd_step=atomic")
	s.options = append(slices.Clone(s.options), "-O0")
	v := s.build(t)
	r, r2 := v.run(t, "-d"), v.run(t, s.call...)
	missed := map[string]int{}
	for _, m := range unreached.FindAllStringSubmatch(r2.output, -1) {
		missed[m[1]]++
	}
	has := map[string]map[string]bool{}
	process := ""
	for _, line := range strings.Split(r.output, "\n") {
		if name, ok := strings.CutPrefix(line, "proctype "); ok {
			process = name
		}
		if m := listed.FindStringSubmatch(line); m != nil {
			if has[m[2]] == nil {
				has[m[2]] = map[string]bool{}
			}
			has[m[2]][process+" "+m[1]] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for line, states := range has {
		c.lines[line] = c.lines[line] || len(states) > missed[line]
	}
}
