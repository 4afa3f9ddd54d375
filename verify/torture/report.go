package torture

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/verify/model"
	"github.com/fencelock/fencelock/verify/traffic"
)

// writeReport writes report.txt into the folder of the run: the summary, and the history lines
// of the first breaches. It draws a page of the model's for the first keys that it refuses.
func (r *Result) writeReport(lines []traffic.Line) error {
	keys := slices.Sorted(maps.Keys(r.Illegal))
	for _, key := range keys[:min(len(keys), 3)] {
		name := "model-" + strings.ReplaceAll(key, "/", "-") + ".html"
		if err := model.Draw(r.Illegal[key], 5*time.Second, filepath.Join(r.Dir, name)); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(r.Dir, "report.txt"))
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintf(f, "%d breaches\n", len(r.Violations))
	r.Summary(f)
	fmt.Fprintf(f, "  grants by use: %v\n  history lines by kind: %v\n", r.Numbers.ByWay, r.Numbers.Lines)
	for _, v := range r.Violations[:min(len(r.Violations), 20)] {
		fmt.Fprintf(f, "\n%v, after %v\n", v, v.At-time.Duration(lines[0].At))
		writeNear(f, lines, v)
	}
	return f.Close()
}

// writeNear writes the lines of the claims that clash, those of the same key within 100 ms, and
// the faults within two seconds.
func writeNear(w io.Writer, lines []traffic.Line, v history.Violation) {
	for _, l := range lines {
		mine := l.Claim != "" && (l.Claim == v.First.Claim || l.Claim == v.Second.Claim)
		away := time.Duration(l.At) - v.At
		beside := l.Key == v.Key && away.Abs() < 100*time.Millisecond
		fault := l.Key == "" && l.Op != traffic.Tick && away.Abs() < 2*time.Second
		if !mine && !beside && !fault || l.Op == traffic.Final {
			continue
		}
		mark := " "
		if mine {
			mark = "▶"
		}
		fmt.Fprintf(w, "%s %+10.3f ms  %-11s %-14s token %d %s\n",
			mark, float64(away)/1e6, l.Op, cmp.Or(l.Claim, l.Proc), l.Token, l.Text)
	}
}
