// Command faults writes verify/faults.md: which test puts which store through which fault. It
// reads comments of the tests:
//
//	//verify:fault SECTION | FAULT                above a test, a fuzz target or a law
//	//verify:fault SECTION | FAULT | /SUBTEST     the same, of a subtest
//	//verify:fault SECTION | FAULT | TestName     anywhere in the package of the test
//	//verify:fault SECTION | FAULT | n/a: REASON  anywhere: the fault does not exist there
package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// sections are the headings of the page, in this order.
var sections = []string{
	"Memory", "SQLite", "PostgreSQL", "PostgreSQL behind PgBouncer", "MariaDB", "Redis", "Redis Sentinel",
	"Redis Cluster", "etcd", "ZooKeeper", "NATS", "S3", "A quorum of five Redis",
	"Processes", "Clocks", "The network", "The API, on all stores", "Security",
}

var head = strings.ReplaceAll(`# Faults, and the tests that cause them

Written by 'cd verify && go run ./cmd/faults' from the comments '//verify:fault' of the tests.
How to run a test is in [README.md](README.md). A name without 'Test' or 'Fuzz' in front is a law:
it runs on every store.
`, "'", "`")

func main() {
	text, err := page("..")
	if err == nil {
		err = os.WriteFile("faults.md", []byte(text), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// row is what a comment says: a test, or why there is none.
type row struct{ section, fault, folder, test, reason string }

// page returns the text of verify/faults.md. root is the folder of the repository.
func page(root string) (string, error) {
	rows, known, err := read(root)
	if err != nil {
		return "", err
	}
	faults := map[string]map[string][]row{}
	for _, r := range rows {
		name, _, _ := strings.Cut(r.test, "/")
		if r.reason == "" && !known[r.folder+" "+name] {
			return "", fmt.Errorf("%s: there is no test %s for the fault %q of %q", r.folder, name, r.fault, r.section)
		}
		if !slices.Contains(sections, r.section) {
			return "", fmt.Errorf("%s: there is no section %q; there are %q", r.folder, r.section, sections)
		}
		if faults[r.section] == nil {
			faults[r.section] = map[string][]row{}
		}
		faults[r.section][r.fault] = append(faults[r.section][r.fault], r)
	}
	var b strings.Builder
	b.WriteString(head)
	for _, section := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n| fault | held by |\n| --- | --- |\n", section)
		for _, fault := range slices.Sorted(maps.Keys(faults[section])) {
			fmt.Fprintf(&b, "| %s | %s |\n", fault, cell(faults[section][fault]))
		}
	}
	return b.String(), nil
}

// cell lists the tests of a fault by folder.
func cell(rows []row) string {
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.folder, b.folder), cmp.Compare(a.test, b.test))
	})
	var folders []string
	tests := map[string][]string{}
	for _, r := range slices.Compact(rows) {
		if r.reason != "" {
			return "n/a: " + r.reason
		}
		if tests[r.folder] == nil {
			folders = append(folders, r.folder)
		}
		tests[r.folder] = append(tests[r.folder], "`"+r.test+"`")
	}
	for i, folder := range folders {
		folders[i] = "`" + folder + "`: " + strings.Join(tests[folder], ", ")
	}
	return strings.Join(folders, "; ")
}

var declared = regexp.MustCompile(`^(?:func |\s*\{")((?:Test|Fuzz)\w+|\w+)(?:\(|",)`)

// read returns the rows of all comments, and the tests and laws that there are, each as "folder name".
func read(root string) (rows []row, known map[string]bool, err error) {
	known = map[string]bool{}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{"node_modules", "testdata", ".git"}, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		folder, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		folder = filepath.ToSlash(folder)
		if strings.HasSuffix(name, "_test.go") || folder == "drivertest" && strings.HasSuffix(name, ".go") {
			of, err := readFile(name, folder, known)
			rows = append(rows, of...)
			return err
		}
		return nil
	})
	return rows, known, err
}

// readFile returns the rows of a file, and adds what it declares to known.
func readFile(name, folder string, known map[string]bool) (rows []row, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var above []row // comments whose test comes next
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if m := declared.FindStringSubmatch(line); m != nil {
			known[folder+" "+m[1]] = true
			for _, r := range above {
				r.test = m[1] + r.test
				rows = append(rows, r)
			}
			above = nil
		}
		text, ok := strings.CutPrefix(strings.TrimSpace(line), "//verify:fault ")
		if !ok {
			continue
		}
		parts := append(strings.Split(text, " | "), "")
		if len(parts) < 3 || len(parts) > 4 {
			return nil, fmt.Errorf("%s: want SECTION | FAULT or SECTION | FAULT | TEST: %s", name, line)
		}
		r := row{section: parts[0], fault: parts[1], folder: folder}
		switch reason, na := strings.CutPrefix(parts[2], "n/a: "); {
		case na:
			r.reason = reason
			rows = append(rows, r)
		case parts[2] == "" || strings.HasPrefix(parts[2], "/"):
			r.test = parts[2]
			above = append(above, r)
		default:
			r.test = parts[2]
			rows = append(rows, r)
		}
	}
	if len(above) > 0 {
		return nil, fmt.Errorf("%s: no test follows a comment for the fault %q", name, above[0].fault)
	}
	return rows, nil
}
