// Package report writes what a person can read about a run: what was done, the numbers,
// a picture of the faults and the grants, and of each breach the claims that clash.
package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/verify/check"
	"github.com/fencelock/fencelock/verify/model"
	"github.com/fencelock/fencelock/verify/traffic"
)

// Run is what was done.
type Run struct {
	Name   string
	Seed   uint64
	TTL    time.Duration
	Faults string
	Again  string // the command
	Told   bool   // a holder is told of its loss
}

//go:embed report.html
var page string

var tmpl = template.Must(template.New("report").Parse(page))

// Write writes report.html into dir, and a page of the model's for the first keys that it
// refuses. It returns the path of the report.
func Write(dir string, r Run, lines []traffic.Line, v *check.Verdict) (string, error) {
	var drawn []string
	keys := slices.Sorted(maps.Keys(v.Illegal))
	for _, key := range keys[:min(len(keys), 3)] {
		name := "model-" + strings.ReplaceAll(key, "/", "-") + ".html"
		if err := model.Draw(v.Illegal[key], 5*time.Second, filepath.Join(dir, name)); err != nil {
			return "", err
		}
		drawn = append(drawn, name)
	}
	p := picture(lines, v)
	var clashes []clash
	for _, one := range v.Violations[:min(len(v.Violations), 20)] {
		clashes = append(clashes, clash{one, time.Duration(one.At - p.begun), near(lines, one)})
	}
	path := filepath.Join(dir, "report.html")
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	err = tmpl.Execute(f, map[string]any{
		"Run": r, "N": v.Numbers, "Picture": p, "Clashes": clashes, "Drawn": drawn, "All": len(v.Violations),
	})
	if err != nil {
		return "", fmt.Errorf("writing %s: %w", path, err)
	}
	return path, f.Close()
}

// clash is one breach and the lines around it.
type clash struct {
	check.Violation
	At    time.Duration
	Lines []string
}

// near are the lines of the claims that clash, and of those beside them on the key.
func near(lines []traffic.Line, v check.Violation) []string {
	var text []string
	for _, l := range lines {
		mine := l.Claim != "" && slices.Contains(v.Claims, l.Claim)
		close := v.Key != "" && l.Key == v.Key && l.At > v.At-int64(time.Second) && l.At < v.At+int64(time.Second)
		if !mine && !close || l.Op == traffic.Final {
			continue
		}
		if len(text) == 60 {
			return append(text, "…")
		}
		mark := "  "
		if mine {
			mark = "▶ "
		}
		text = append(text, fmt.Sprintf("%s%+10.3f ms  %-11s %-14s token %d %s",
			mark, float64(l.At-v.At)/1e6, l.Op, l.Claim, l.Token, l.Text))
	}
	return text
}
