package doctor_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/health"
)

// elsewhere has the findings whose advice a test of another package follows.
var elsewhere = map[string]string{
	"mysql-several-writers": "../sql TestGaleraWithOneWriter", // it stays, as the advice says: what follows is that nothing stalls
}

// fed has, by test, the findings that went away when their advice was followed.
var (
	fedMu sync.Mutex
	fed   = map[string]map[string]bool{}
)

// feeds notes that the advice of a finding was followed, and that the finding is gone.
func feeds(t *testing.T, code string) {
	fedMu.Lock()
	defer fedMu.Unlock()
	if fed[t.Name()] == nil {
		fed[t.Name()] = map[string]bool{}
	}
	fed[t.Name()][code] = true
}

// feedsBack says which findings a test feeds back: it fails unless it does.
func feedsBack(t *testing.T, codes ...string) {
	t.Cleanup(func() {
		fedMu.Lock()
		defer fedMu.Unlock()
		for _, code := range codes {
			if !fed[t.Name()][code] && !t.Failed() {
				t.Errorf("the advice of %s was not followed", code)
			}
		}
	})
}

// byHand follows advice that is not a statement to the store. There is a finding, which is its
// severity and code, and its remedy has these words. do does them, and the finding is gone.
func byHand(t *testing.T, finding, words string, ttl time.Duration, open func() driver.Backend, do func()) (was health.Finding) {
	t.Helper()
	severity, code, _ := strings.Cut(finding, " ")
	of := func(all []health.Finding) int {
		return slices.IndexFunc(all, func(f health.Finding) bool { return f.Code == code })
	}
	// Of what is measured it waits until the host of the tests is quick enough to tell.
	look := func(wanted bool) (all []health.Finding, i int) {
		until(t, finding, func() bool {
			all = check(t, open(), ttl).Findings
			i = of(all)
			return i >= 0 == wanted || !slices.Contains(measured, code)
		})
		return all, i
	}
	before, i := look(true)
	switch {
	case i < 0:
		t.Fatalf("%s is not found, only %v", code, before)
	case before[i].Severity.String() != severity:
		t.Fatalf("%s is found as %v; want it as %s", code, before[i].Severity, severity)
	case !strings.Contains(before[i].Remedy, words):
		t.Fatalf("the remedy of %s is %q; want it to say %q", code, before[i].Remedy, words)
	}
	t.Logf("%s: %q", code, before[i].Remedy)
	do()
	if after, i := look(false); i >= 0 {
		t.Fatalf("%s is found after %q: %v", code, before[i].Remedy, after)
	}
	feeds(t, code)
	return before[i]
}

// TestAdviceOfEveryFindingIsFollowed: a finding that no test feeds back, or that docs/doctor.md does
// not have, fails here.
func TestAdviceOfEveryFindingIsFollowed(t *testing.T) {
	t.Parallel()
	const root = "../.."
	inSource := regexp.MustCompile(`(?:health\.(?:Error|Warning|Note)|\bseverity), "([a-z-]+)"|Code: "([a-z-]+)"`)
	codes := map[string]bool{}
	for _, folder := range []string{"doctor", "redislock", "sqllock", "etcdlock", "zklock", "quorumlock", "natslock"} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		must(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			must(t, err)
			for _, m := range inSource.FindAllStringSubmatch(strings.Join(strings.Fields(string(source)), " "), -1) {
				codes[m[1]+m[2]] = true
			}
		}
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "doctor.md"))
	must(t, err)
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		listed[m[1]] = true
	}
	if got, want := slices.Sorted(maps.Keys(codes)), slices.Sorted(maps.Keys(listed)); !slices.Equal(got, want) {
		t.Errorf("the source has the findings\n%v\nand docs/doctor.md has\n%v", got, want)
	}
	followed := map[string]bool{}
	for _, call := range regexp.MustCompile(`(?s)feedsBack\(t, (".*?")\)`).FindAllStringSubmatch(tests(t, "."), -1) {
		for code := range strings.SplitSeq(call[1], ",") {
			followed[strings.Trim(code, "\"\n\t ")] = true
		}
	}
	for code, test := range elsewhere {
		folder, name, _ := strings.Cut(test, " ")
		if !strings.Contains(tests(t, folder), "func "+name+"(") {
			t.Errorf("the test of %s is not there: %s", code, test)
		}
		followed[code] = true
	}
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		if !followed[code] {
			t.Errorf("no test follows the advice of %s: name it in a call of feedsBack", code)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(followed)) {
		if !codes[code] {
			t.Errorf("a test follows the advice of %s, which is not a finding", code)
		}
	}
}

// tests returns the text of the tests of a folder, whatever their build tags are.
func tests(t *testing.T, folder string) (text string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	must(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		must(t, err)
		text += string(source)
	}
	return text
}
