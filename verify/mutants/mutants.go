// Package mutants breaks one line of this library at a time, and runs the tests that should
// notice. The mutants are entries of text files, one for each part of the library:
//
//	## what is wrong, in a few words
//	the file, from the root of the repository
//	- a text that occurs in it once
//	+ what is put in its place, or nothing
//	> the folder of a test, and a pattern for names of tests, the cheapest first
//
// The tree stays as it is: -overlay makes the go command read the broken file instead, also in
// tests that build something. The tests are called as CI calls them. A test that does not
// end notices nothing: CI would wait for it until its own limit.
package mutants

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Mutant is one rule that is taken out.
type Mutant struct {
	Name string
	File string // slash-separated, from the root of the repository
	Old  string // occurs in File exactly once
	New  string
	By   []Test // who should notice, the cheapest first
}

// Test is a call of go test.
type Test struct {
	Dir string // the folder of its package, from the root of the repository
	Run string // a pattern for names of tests
}

func (t Test) String() string { return "go test -run " + t.Run + " ./" + t.Dir }

// Section is the mutants of one part of the library.
type Section struct {
	Name    string
	Mutants []Mutant
}

// All returns every mutant.
func All() []Mutant {
	var all []Mutant
	for _, s := range Sections() {
		all = append(all, s.Mutants...)
	}
	return all
}

// Verdict is what became of a mutant.
type Verdict struct {
	Mutant
	Test   Test          // who noticed
	Failed string        // the first test that failed in it; "" if nobody noticed
	Took   time.Duration // with building what it needs
	Output string        // of the last go test
}

// Apply returns the file with m in it.
func (m Mutant) Apply(root string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File)))
	if err != nil {
		return nil, err
	}
	text := string(b)
	switch n := strings.Count(text, m.Old); {
	case m.Old == m.New:
		return nil, fmt.Errorf("%q changes nothing", m.Name)
	case n != 1:
		return nil, fmt.Errorf("%q: its text occurs %d times in %s; want once, as in\n%s", m.Name, n, m.File, m.Old)
	}
	return []byte(strings.Replace(text, m.Old, m.New, 1)), nil
}

// Try applies m, in the folder scratch, and runs its tests until one notices. A test may
// take so long as limit says; to take longer is an error.
func Try(ctx context.Context, root, scratch string, m Mutant, limit time.Duration) (Verdict, error) {
	v := Verdict{Mutant: m}
	broken, err := m.Apply(root)
	if err != nil {
		return v, err
	}
	file, name := filepath.Join(scratch, "broken"+filepath.Ext(m.File)), filepath.Join(scratch, "overlay.json")
	replaced := filepath.Join(root, filepath.FromSlash(m.File))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{replaced: file}})
	err = errors.Join(err, os.WriteFile(file, broken, 0o600), os.WriteFile(name, overlay, 0o600))
	if err != nil {
		return v, err
	}
	begun := time.Now()
	for _, t := range m.By {
		v.Output, err = t.run(ctx, root, name, limit)
		if err == nil {
			v.Failed, err = judge(v.Output)
		}
		v.Took = time.Since(begun)
		if err != nil {
			return v, fmt.Errorf("%q: %s: %w", m.Name, t, err)
		}
		if v.Failed != "" {
			v.Test = t
			break
		}
	}
	return v, nil
}

// ci is how scripts/tests.bash calls go test, with the tests that make verify adds: see
// TestMutantsAreTriedAsTestsAreRun.
var ci = []string{
	"test", "-race", "-vet=off",
	"-gcflags=modernc.org/...=-race=false", "-gcflags=github.com/go-zookeeper/...=-race=false", "-tags=verify",
}

// run runs t and returns what it prints. The overlay is handed to the go commands that
// the tests call, too.
func (t Test) run(ctx context.Context, root, overlay string, limit time.Duration) (string, error) {
	args := append(slices.Clone(ci), "-count=1", "-failfast", "-timeout", limit.String(), "-run", t.Run, ".")
	if t.Dir == "verify/bubble" { // a random program that fails is not made smaller
		args = append(args, "-rapid.nofailfile", "-rapid.shrinktime=1ms")
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(root, filepath.FromSlash(t.Dir))
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return string(out), context.Cause(ctx)
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return string(out), err
	}
	return string(out), nil
}

var (
	failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	crash   = regexp.MustCompile(`(?m)^panic: (Test\w+): `) // of a test that gives up by itself
	passed  = regexp.MustCompile(`(?m)^ok\s`)
)

// judge reads what go test printed. It returns the test that failed, or "" if all passed.
func judge(out string) (failed string, err error) {
	switch {
	case strings.Contains(out, "[no tests to run]"):
		return "", errors.New("there is no such test")
	case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"):
		return "", fmt.Errorf("it does not even compile:\n%s", out)
	case strings.Contains(out, "panic: test timed out after"):
		return "", errors.New("hangs, so nothing has noticed it: it needs a test that fails by itself")
	}
	// The innermost name says most.
	for _, m := range failure.FindAllStringSubmatch(out, -1) {
		if strings.HasPrefix(m[1], failed) {
			failed = m[1]
		}
	}
	switch {
	case failed != "":
		return failed, nil
	case crash.MatchString(out):
		return crash.FindStringSubmatch(out)[1], nil
	case strings.Contains(out, "panic: "), strings.Contains(out, "fatal error: "):
		return "panics", nil
	case passed.MatchString(out):
		return "", nil
	}
	return "", fmt.Errorf("it ended for another reason than a failed test:\n%s", out)
}

// names are the text files, in the order of the table.
var names = []string{
	"core", "memory", "swap", "s3", "nats", "redis", "sql", "consensus", "quorum", "bridge", "guards", "service",
	"command",
}

//go:embed *.txt
var texts embed.FS

// Sections returns all mutants, by what they break.
func Sections() []Section {
	var all []Section
	for _, name := range names {
		text, err := texts.ReadFile(name + ".txt")
		if err != nil {
			panic(err)
		}
		heading, rest, _ := strings.Cut(string(text), "\n\n")
		s := Section{Name: strings.TrimPrefix(heading, "# ")}
		for entry := range strings.SplitSeq(strings.TrimSpace(rest), "\n\n") {
			s.Mutants = append(s.Mutants, parse(strings.Split(entry, "\n")))
		}
		all = append(all, s)
	}
	return all
}

// parse reads a mutant. It panics at what is none.
func parse(lines []string) Mutant {
	parts := map[byte][]string{}
	for _, line := range lines[2:] {
		parts[line[0]] = append(parts[line[0]], line[min(2, len(line)):])
	}
	m := Mutant{
		Name: strings.TrimPrefix(lines[0], "## "), File: lines[1],
		Old: strings.Join(parts['-'], "\n"), New: strings.Join(parts['+'], "\n"),
	}
	for _, by := range parts['>'] {
		dir, run, _ := strings.Cut(by, " ")
		m.By = append(m.By, Test{dir, run})
	}
	if len(parts['-'])+len(parts['+'])+len(parts['>']) != len(lines)-2 {
		panic(fmt.Sprintf("a line of %q begins with none of - + >", lines))
	}
	return m
}

const head = "# What notices when a rule is taken out\n\n" +
	"Each line is this library with one line of its own broken, and the first test that failed.\n" +
	"Written by `go run ./cmd/mutants`, in the folder verify. The tests are called as CI calls\n" +
	"them, with the race detector; the time has the building in it.\n"

// Line is v as a line of the table.
func (v Verdict) Line() string {
	return fmt.Sprintf("| %s | `%s` | `%s` in `%s` | %.0f s |", v.Name, v.File, v.Failed, v.Test.Dir, v.Took.Seconds())
}

// Table is the table of all mutants, with the line of each by its name. Those that have
// none were not run.
func Table(lines map[string]string) string {
	var b strings.Builder
	b.WriteString(head)
	for _, s := range Sections() {
		fmt.Fprintf(&b, "\n## Rules of %s\n\n", s.Name)
		b.WriteString("| broken | where | noticed by | after |\n| --- | --- | --- | --: |\n")
		for _, m := range s.Mutants {
			if l := lines[m.Name]; l != "" {
				b.WriteString(l + "\n")
			}
		}
	}
	return b.String()
}

// Told is what a line of the table says.
type Told struct {
	Name, File, Failed, Package string
}

var row = regexp.MustCompile("^\\| (.+) \\| `(.+)` \\| `(.+)` in `(.+)` \\| \\d+ s \\|")

// Read reads a line of the table.
func Read(line string) (t Told, ok bool) {
	m := row.FindStringSubmatch(line)
	if m == nil {
		return t, false
	}
	return Told{m[1], m[2], m[3], m[4]}, true
}

// Lines reads a table: its lines by the names of the mutants.
func Lines(table string) map[string]string {
	lines := map[string]string{}
	for l := range strings.Lines(table) {
		if t, ok := Read(l); ok {
			lines[t.Name] = strings.TrimSpace(l)
		}
	}
	return lines
}
