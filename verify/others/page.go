package others

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"
)

//go:embed page.tmpl
var pageText string

//go:embed tables.tmpl
var tablesText string

// WritePage writes docs/others-under-test.md, and the page with all tables, of the results that were kept.
func WritePage(verify string) error {
	pages, err := renderPages(verify)
	if err != nil {
		return err
	}
	for name, page := range pages {
		if err := os.WriteFile(name, page, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// renderPages returns the text of each page by its file.
func renderPages(verify string) (map[string][]byte, error) {
	all, err := readResults(verify)
	if err != nil {
		return nil, err
	}
	tables := template.FuncMap{"libraries": all.libraryTable, "schedules": all.scheduleTables}
	pages := map[string][]byte{}
	for name, text := range map[string]string{
		filepath.Join(verify, "..", "docs", "others-under-test.md"): pageText,
		filepath.Join(verify, "others", "tables.md"):                tablesText,
	} {
		var out bytes.Buffer
		t := template.New("page").Funcs(tables)
		if t, err = t.Parse(text); err != nil {
			return nil, err
		}
		if err = t.Execute(&out, all); err != nil {
			return nil, err
		}
		pages[name] = out.Bytes()
	}
	return pages, nil
}

// column is one of a table.
type column struct {
	title string
	cell  func(r result) string
}

var (
	killed = []column{{"B is in after", func(r result) string { return took(r.Next) }}}
	lost   = []column{
		{"B is in after", func(r result) string { return took(r.Next) }},
		{"two believe", func(r result) string { return both(r.Both) }},
		{"A is told after", told},
		{"A's unlock says", func(r result) string { return r.Unlock }},
	}
	restarted = []column{
		{"two believe", func(r result) string { return both(r.Both) }},
		{"A is told after", told},
		{"A's unlock says", func(r result) string { return r.Unlock }},
		{"B is in after", func(r result) string { return took(r.Next) }},
		{"B's call meanwhile", func(r result) string {
			if r.Waiter != "" {
				return "failed"
			}
			return "went on"
		}},
	}
	ordered = []column{
		{"served, by rounds", func(r result) string { return strings.Join(r.Orders, "<br>") }},
		{"all served in", func(r result) string {
			var all []string
			for _, d := range r.Served {
				all = append(all, took(d))
			}
			return strings.Join(all, "<br>")
		}},
		{"tokens", func(r result) string { return r.Tokens }},
		{"two believe", func(r result) string { return both(r.Both) }},
	}
	ghosts = []column{
		{"behind one that gave up", func(r result) string {
			if r.GaveUp == never {
				return "cannot give up"
			}
			return took(r.GaveUp)
		}},
		{"behind one that was killed", func(r result) string { return took(r.Killed) }},
		{"behind a lost answer", func(r result) string { return took(r.Unheard) }},
		{"that caller hears", func(r result) string { return r.Caller }},
	}
)

// took is a time in a table.
func took(d time.Duration) string {
	switch {
	case d == never:
		return "not in that time"
	case d == before:
		return "before the unlock"
	case d < time.Millisecond:
		return "under 1 ms"
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

func both(d time.Duration) string {
	if d == 0 {
		return "no"
	}
	return took(d)
}

func told(r result) string {
	switch {
	case r.Told == never:
		return "not told"
	case r.Doubtful:
		return took(r.Told) + ", doubtful"
	}
	return took(r.Told)
}

func (r *results) libraryTable() string {
	var t table
	t.row("library", "version", "used as")
	t.rule(3)
	for _, l := range libraries {
		if s := r.Libraries[l.name]; s != nil {
			t.row(l.linked(), s.Version, l.use)
		}
	}
	return t.String()
}

func (l library) linked() string {
	if l.ours {
		return l.name
	}
	return "[" + l.name + "](" + l.home + ")"
}

func (r *results) scheduleTables() string {
	var t table
	for _, sch := range schedules {
		fmt.Fprintf(&t, "### %s\n\n%s\n\n", sch.title, sch.story)
		titles := []string{"library"}
		for _, c := range sch.columns {
			titles = append(titles, c.title)
		}
		t.row(append(titles, "its documentation promises")...)
		t.rule(len(titles) + 1)
		for _, l := range libraries {
			s := r.Libraries[l.name]
			if s == nil {
				continue
			}
			seen, played := s.Schedules[sch.name]
			if !played {
				continue
			}
			t.row(append(cells(l, sch, seen), l.promised(sch.name))...)
		}
		t.WriteString("\n")
	}
	return strings.TrimSpace(t.String())
}

func cells(l library, sch schedule, seen result) []string {
	all := []string{l.name}
	for i, c := range sch.columns {
		switch {
		case seen.Failed == "":
			all = append(all, c.cell(seen))
		case i == 0:
			all = append(all, "could not be played: "+seen.Failed)
		default:
			all = append(all, "")
		}
	}
	return all
}

// table is Markdown.
type table struct{ strings.Builder }

func (t *table) row(cells ...string) { fmt.Fprintf(t, "| %s |\n", strings.Join(cells, " | ")) }
func (t *table) rule(columns int)    { t.WriteString("|" + strings.Repeat(" --- |", columns) + "\n") }
