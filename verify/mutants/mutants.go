// Package mutants breaks this library on purpose, one line at a time, and sees which
// test notices: a rule that can be taken out without a test failing is held by none.
//
// The mutants are entries of a list: a file, a text that occurs in it once, and what is
// put in its place. The tree is not touched. The go command is told by -overlay to read
// the broken file in place of the sound one.
//
//	cd verify && go run ./cmd/mutants
//
// runs all of them and writes mutants.md.
package mutants

import (
	"context"
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
	Name string // what is wrong, in a few words
	File string // slash-separated, from the root of the repository
	Old  string // occurs in File exactly once
	New  string
	By   []Test // who should notice, the cheapest first
}

// Test is a call of go test.
type Test struct {
	Module  string // the folder it is called in, from the root of the repository
	Package string
	Run     string   // a pattern for names of tests
	Args    []string // after the package
}

func (t Test) String() string {
	return strings.Join(append([]string{"go test", "-run", t.Run, t.where()}, t.Args...), " ")
}

// where is the package, from the root of the repository.
func (t Test) where() string { return "./" + filepath.ToSlash(filepath.Join(t.Module, t.Package)) }

// All returns every mutant.
func All() []Mutant {
	return slices.Concat(core(), memory(), redis(), sql(), consensus(), quorum())
}

// Verdict is what became of a mutant.
type Verdict struct {
	Mutant
	Caught bool
	Test   Test          // who noticed
	Failed string        // the first test that failed in it
	Took   time.Duration // with building what it needs
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
// take so long as limit says; one that takes longer has noticed.
func Try(ctx context.Context, root, scratch string, m Mutant, limit time.Duration) (Verdict, error) {
	v := Verdict{Mutant: m}
	broken, err := m.Apply(root)
	if err != nil {
		return v, err
	}
	file := filepath.Join(scratch, "broken"+filepath.Ext(m.File))
	if err := os.WriteFile(file, broken, 0o600); err != nil {
		return v, err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, filepath.FromSlash(m.File)): file}})
	if err != nil {
		return v, err
	}
	name := filepath.Join(scratch, "overlay.json")
	if err := os.WriteFile(name, overlay, 0o600); err != nil {
		return v, err
	}
	begun := time.Now()
	for _, t := range m.By {
		failed, err := t.run(ctx, root, name, limit)
		v.Took = time.Since(begun)
		if err != nil {
			return v, fmt.Errorf("%q: %s: %w", m.Name, t, err)
		}
		if failed != "" {
			v.Caught, v.Test, v.Failed = true, t, failed
			return v, nil
		}
	}
	return v, nil
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// run runs t, and returns the test in it that failed, or "".
func (t Test) run(ctx context.Context, root, overlay string, limit time.Duration) (failed string, err error) {
	args := append([]string{"test", "-count=1", "-failfast", "-timeout", limit.String(), "-overlay", overlay, "-run", t.Run, t.Package}, t.Args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(root, filepath.FromSlash(t.Module))
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	text := string(out)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err == nil && strings.Contains(text, "[no tests to run]"):
		return "", errors.New("there is no such test")
	case err == nil:
		return "", nil
	case strings.Contains(text, "[build failed]"), strings.Contains(text, "[setup failed]"):
		return "", fmt.Errorf("it does not even compile:\n%s", text)
	case strings.Contains(text, "panic: test timed out after"):
		return "hangs", nil
	}
	if all := failure.FindAllStringSubmatch(text, -1); len(all) > 0 {
		// The innermost name says most.
		longest := ""
		for _, m := range all {
			if strings.HasPrefix(m[1], longest) {
				longest = m[1]
			}
		}
		return longest, nil
	}
	if strings.Contains(text, "panic: ") || strings.Contains(text, "fatal error: ") {
		return "panics", nil
	}
	return "", fmt.Errorf("it ended for another reason than a failed test: %w\n%s", err, text)
}

const head = "# What notices when a rule is taken out\n\n" +
	"Each line is this library with one line of its own broken, and the first test that failed.\n" +
	"Written by `go run ./cmd/mutants`, in the folder verify. The time has the building in it,\n" +
	"and is without the race detector.\n\n" +
	"| broken | where | noticed by | after |\n| --- | --- | --- | --- |\n"

// Line is v as a line of the table.
func (v Verdict) Line() string {
	by, after := "**nobody**", "-"
	if v.Caught {
		by = fmt.Sprintf("`%s` in `%s`", v.Failed, v.Test.where())
		after = fmt.Sprintf("%.0f s", v.Took.Seconds())
	}
	return fmt.Sprintf("| %s | `%s` | %s | %s |", v.Name, v.File, by, after)
}

// Table is the table of all mutants, with the line of each by its name. Those that have
// none were not run.
func Table(lines map[string]string) string {
	var b strings.Builder
	b.WriteString(head)
	for _, m := range All() {
		if l := lines[m.Name]; l != "" {
			b.WriteString(l + "\n")
		}
	}
	return b.String()
}

// Lines reads a table.
func Lines(table string) map[string]string {
	lines := map[string]string{}
	for l := range strings.Lines(table) {
		if cells := strings.Split(l, " | "); len(cells) == 4 && strings.HasPrefix(l, "| ") && strings.HasPrefix(cells[1], "`") {
			lines[strings.TrimPrefix(cells[0], "| ")] = strings.TrimRight(l, "\n")
		}
	}
	return lines
}
