package fencelock_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// readFile returns the text of a file of the repository.
func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	must(t, err)
	if len(text) == 0 {
		t.Fatalf("%s is empty", name)
	}
	return string(text)
}

// namesOfTests returns the names of all tests, laws and stores, and those of the API that pages name.
func namesOfTests(t *testing.T) map[string]bool {
	known := map[string]bool{ // names of the API and of the servers' settings
		"Err": true, "Once": true, "HandOff": true,
	}
	for _, f := range repository(t) {
		if !f.test && !within(f.dir, "drivertest") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(f.name), nil, parser.SkipObjectResolution)
		must(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if name := nameIn(f, n); name != "" {
				known[name] = true
			}
			return true
		})
	}
	return known
}

// nameIn returns the name of the test, law or store that a node of a file declares, or "".
func nameIn(f goFile, n ast.Node) string {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if f.test && strings.HasPrefix(n.Name.Name, "Test") {
			return n.Name.Name
		}
	case *ast.CompositeLit: // {"WakeAll", fair, …}, a law
		if len(n.Elts) > 0 && f.dir == "drivertest" && !f.test {
			return literal(n.Elts[0])
		}
	case *ast.KeyValueExpr: // name: "SQLite", of a table of stores
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "name" && f.dir == "verify/sql" {
			return literal(n.Value)
		}
	}
	return ""
}

func literal(e ast.Expr) string {
	if text, ok := e.(*ast.BasicLit); ok {
		return strings.Trim(text.Value, `"`)
	}
	return ""
}

// The pages on guarantees and on questions are worth as much as the tests they name.
func TestPagesNameTestsThatExist(t *testing.T) {
	known := namesOfTests(t)
	for page, name := range map[string]string{
		"docs/guarantees.md": "`([A-Z][A-Za-z0-9]+)`", "verify/guarantees.md": "`([A-Z][A-Za-z0-9]+)`",
		"docs/questions.md": "`(Test[A-Za-z0-9]+)`", "docs/questions.zh-CN.md": "`(Test[A-Za-z0-9]+)`",
		"verify/reports/README.md": "`(Test[A-Za-z0-9_]+)[`/]",
	} {
		found := regexp.MustCompile(name).FindAllStringSubmatch(readFile(t, page), -1)
		if len(found) < 10 {
			t.Errorf("%s names %d tests; this test reads it wrongly", page, len(found))
		}
		for _, m := range found {
			if !known[m[1]] {
				t.Errorf("%s names %s, which is no test and no law", page, m[1])
			}
		}
	}
}

// Each row of the guarantees names a test or a law. The page stays short enough to read.
func TestEachGuaranteeNamesItsTest(t *testing.T) {
	const page = "docs/guarantees.md"
	text := readFile(t, page)
	named := 0
	for _, row := range regexp.MustCompile(`(?m)^\| .*\|$`).FindAllString(text, -1) {
		cells := strings.Split(strings.Trim(row, "|"), "|")
		last := strings.TrimSpace(cells[len(cells)-1])
		switch {
		case last == "---" || strings.HasPrefix(last, "test"):
		case !strings.HasPrefix(last, "`"):
			t.Errorf("%s has a row without a test: %s", page, row)
		default:
			named++
		}
	}
	read := regexp.MustCompile(`\]\([^)]*\)`).ReplaceAllString(text, "]")
	if words := len(regexp.MustCompile(`[\pL\pN✓✗]\S*`).FindAllString(read, -1)); words > 1500 {
		t.Errorf("%s has %d words; the long form is verify/guarantees.md", page, words)
	}
	if named < 45 {
		t.Errorf("%s names %d tests; this test reads it wrongly", page, named)
	}
}

// The versions in the table of requirements are those of the package comments and of the README.
func TestRequirementsAreThoseOfThePackages(t *testing.T) {
	read := func(name string) string {
		return strings.Join(strings.Fields(strings.ReplaceAll(readFile(t, name), "//", "")), " ")
	}
	var page [2]string
	for i, name := range []string{"docs/choosing-a-backend.md", "docs/choosing-a-backend.zh-CN.md"} {
		page[i] = read(name)
	}
	readme := read("README.md")
	for _, of := range []struct{ store, folder, least, tested, inReadme string }{
		{"Redis](", "redislock", "Redis 5.0", "6.0, 7.0, 8.0", "6.0–8.0"},
		{"Valkey", "redislock", "Redis 5.0", "9.1", "Valkey 9.1"},
		{"PostgreSQL](", "sqllock", "12", "13, 15, 18", "13–18"},
		{"MariaDB](", "sqllock", "10.6", "10.11, 11.8", "10.11–11.8"},
		{"MySQL](", "sqllock", "8.0.29", "9.7", "MySQL 9.7"},
		{"SQLite](", "sqllock", "3.37", "modernc.org/sqlite", "SQLite"},
		{"etcd](", "etcdlock", "3.4", "3.5, 3.7", "3.5–3.7"},
		{"ZooKeeper](", "zklock", "3.5.3", "3.8, 3.9", "3.8–3.9"},
		{"NATS](", "natslock", "2.10", "2.15", "2.15"},
	} {
		for i := range page {
			row := regexp.MustCompile(`\| \[?` + regexp.QuoteMeta(of.store) + `[^|]*\|[^|]*` + of.least + ` \|[^|]*` + of.tested)
			if !row.MatchString(page[i]) {
				t.Errorf("the table has no row of %s with %s and %s", of.store, of.least, of.tested)
			}
		}
		comment := read(of.folder + "/doc.go")
		for _, v := range append(strings.Split(of.tested, ", "), of.least) {
			if !strings.Contains(comment, v) {
				t.Errorf("the comment of %s does not say %s", of.folder, v)
			}
		}
		if !strings.Contains(readme, of.inReadme) {
			t.Errorf("README.md does not say %s", of.inReadme)
		}
	}
	rights := regexp.MustCompile(`[A-Z]{4,}`)
	for _, row := range regexp.MustCompile(`\| \[(?:PostgreSQL|MariaDB)\][^|]*\|[^|]*\|[^|]*\|[^|]*\|`).FindAllString(page[0], -1) {
		for _, right := range rights.FindAllString(row, -1) {
			if !strings.Contains(read("sqllock/doc.go"), right) {
				t.Errorf("the comment of sqllock does not say %s", right)
			}
		}
	}
}

// A page in Chinese has the headings, rows and items of its twin, and says of each link to a page that is
// not in Chinese that it is in English: in the same section.
func TestChinesePagesAreInStep(t *testing.T) {
	shape := regexp.MustCompile(`(?m)^(?:#+ |\| |\|-| *- | *\d+\. )`)
	link := regexp.MustCompile(`\]\(([^)#:]*\.md)[^)]*\)`)
	for _, page := range pages(t) {
		original, chinese := strings.CutSuffix(page, ".zh-CN.md")
		if !chinese {
			continue
		}
		var text [2]string
		for i, name := range []string{original + ".md", page} {
			text[i] = prose(readFile(t, name))
		}
		lines := func(text string) (all string) {
			for _, m := range shape.FindAllString(text, -1) {
				all += strings.TrimSpace(m)[:1]
			}
			return all
		}
		if a, b := lines(text[0]), lines(text[1]); len(a) != len(b) {
			t.Errorf("%s has %d headings, rows and items, and its twin %d", page, len(b), len(a))
		}
		for _, section := range regexp.MustCompile(`(?m)^## `).Split(text[1], -1)[1:] {
			for _, m := range link.FindAllStringSubmatch(section, -1) {
				if !strings.HasSuffix(m[1], ".zh-CN.md") && !strings.Contains(section, "英文") {
					t.Errorf("%s links to %s and does not say that it is in English", page, m[1])
				}
			}
		}
	}
}

// Sizes and limits that pages name are those of the source.
func TestLimitsInPagesAreThoseOfTheSource(t *testing.T) {
	for _, of := range []struct{ source, says, page, promises string }{
		{"tools/release/rehearse.go", "maxBinary = 35_000_000", "docs/release.md", "smaller than 35 MB"},
		{"options.go", "DefaultTTL = 30 * time.Second", "docs/operations.md", "default of 30 s"},
	} {
		for file, text := range map[string]string{of.source: of.says, of.page: of.promises} {
			if !strings.Contains(readFile(t, file), text) {
				t.Errorf("%s does not say %q; %s and %s belong together", file, text, of.source, of.page)
			}
		}
	}
}

// What a user reads is at most thirty thousand words in English. Not counted are the list of the command's
// verbs and the plays of the lab, which programs write, the changelog, and pages for contributors.
func TestUsersHaveThirtyThousandWordsToRead(t *testing.T) {
	generated := regexp.MustCompile(`^docs/(cli|lab)\.md$`)
	contributors := regexp.MustCompile(`^(verify/|docs/adr/|docs/(ARCHITECTURE|terms|release|your-own-store)\.md|CONTRIBUTING|CHANGELOG|clients/conformance/)`)
	word := regexp.MustCompile(`[\pL\pN_✓✗]\S*`)
	address := regexp.MustCompile(`\]\([^)]*\)`)
	all := 0
	for _, page := range pages(t) {
		if strings.HasSuffix(page, ".zh-CN.md") || generated.MatchString(page) || contributors.MatchString(page) {
			continue
		}
		all += len(word.FindAllString(address.ReplaceAllString(readFile(t, page), "]"), -1))
	}
	if all > 30_000 || all < 20_000 {
		t.Errorf("users have %d words to read; shorten a page, or make data of a table", all)
	}
}

// Links between pages of the repository lead to a file that is there, and to a heading or an anchor in it.
func TestLinksInTheDocumentationLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`(?:\]\(|src="|srcset=")([^)#:"]*)(?:#([^)"]*))?[)"]`)
	anchors := map[string]map[string]bool{}
	for _, name := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(prose(readFile(t, name)), -1) {
			to := name
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(name), filepath.FromSlash(m[1]))
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s, which is not there", name, m[1])
				continue
			}
			if m[2] == "" || !strings.HasSuffix(to, ".md") {
				continue
			}
			if anchors[to] == nil {
				anchors[to] = anchorsOf(t, to)
			}
			if !anchors[to][m[2]] {
				t.Errorf("%s links to %s#%s, and there is no such heading", name, to, m[2])
			}
		}
	}
}

// pages returns the Markdown files of the repository.
func pages(t *testing.T) (names []string) {
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules"):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".md"):
			names = append(names, name)
		}
		return nil
	})
	must(t, err)
	return names
}

// prose is a page without its blocks of code and its code in lines.
func prose(page string) string {
	page = regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(page, "")
	return regexp.MustCompile("`[^`\n]*`").ReplaceAllString(page, "")
}

// anchorsOf returns the anchors of a page: its own, and those that GitHub makes of headings.
func anchorsOf(t *testing.T, name string) map[string]bool {
	text := readFile(t, name)
	known := map[string]bool{}
	for _, m := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(text, -1) {
		known[m[1]] = true
	}
	code := regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(text, "")
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(code, -1) {
		heading := regexp.MustCompile(`\]\([^)]*\)`).ReplaceAllString(m[1], "")
		heading = regexp.MustCompile(`[^\p{L}\p{N}\p{M} _-]`).ReplaceAllString(strings.ToLower(heading), "")
		known[strings.ReplaceAll(heading, " ", "-")] = true
	}
	return known
}

// exported returns the exported names of the packages that pages name, methods and fields among them, by
// the last element of the package's path.
func exported(t *testing.T) map[string]map[string]bool {
	folders := map[string]string{".": "fencelock"}
	for _, dir := range []string{
		"redislock", "sqllock", "etcdlock", "zklock", "s3lock", "natslock", "quorumlock", "memlock", "fence", "elect", "history", "doctor",
		"storeurl", "httplock", "promfence", "otelfence", "driver", "driver/ballot", "drivertest/faulty",
	} {
		folders[dir] = filepath.Base(dir)
	}
	names := map[string]map[string]bool{}
	for _, f := range repository(t) {
		of := folders[f.dir]
		if of == "" || f.test {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(f.name), nil, parser.SkipObjectResolution)
		must(t, err)
		if names[of] == nil {
			names[of] = map[string]bool{}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				names[of][n.Name.Name] = true
				return false // names in a body are not of the API
			case *ast.TypeSpec:
				names[of][n.Name.Name] = true
			case *ast.ValueSpec, *ast.Field:
				for _, name := range namesOf(n) {
					names[of][name.Name] = true
				}
			}
			return true
		})
	}
	return names
}

func namesOf(n ast.Node) []*ast.Ident {
	if f, ok := n.(*ast.Field); ok {
		return f.Names
	}
	return n.(*ast.ValueSpec).Names
}

// What a page calls redislock.Options.Replicas is in that package.
func TestPagesNameTheAPIAsItIs(t *testing.T) {
	names := exported(t)
	var packages []string
	for p := range names {
		packages = append(packages, p)
	}
	called := regexp.MustCompile(`\b(` + strings.Join(packages, "|") + `)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)
	found := 0
	for _, page := range pages(t) {
		if page == "CHANGELOG.md" || strings.HasPrefix(page, "docs/adr/") { // they name what is gone
			continue
		}
		for _, m := range called.FindAllStringSubmatch(readFile(t, page), -1) {
			found++
			if !names[m[1]][m[2]] || m[3] != "" && !names[m[1]][m[3]] {
				t.Errorf("%s names %s, which is not exported", page, m[0])
			}
		}
	}
	if found < 100 {
		t.Errorf("%d names were found; this test reads pages wrongly", found)
	}
}
