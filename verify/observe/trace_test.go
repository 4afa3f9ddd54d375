package observe

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

// draw is where TestTraceOfThreeProcesses writes its spans as pictures, for light and dark pages:
// go test ./observe -run Trace -draw ../../docs/images
var draw = flag.String("draw", "", "write the spans of three processes to this folder, as SVG")

// Three processes want one key. Each trace has the waiting and the holding below its job, and a
// link from each wait to the job of the process that was in its way.
func TestTraceOfThreeProcesses(t *testing.T) {
	store := testserver.Redis(t)
	locks := client(t, store.URL())
	const key = "orders/42"
	claims := func(holder string, waiters int) func() bool {
		return func() bool {
			line, err := locks.Line(context.Background(), key)
			must(t, err)
			return len(line.Claims) == 1+waiters && line.Claims[0].Granted && line.Claims[0].Owner == holder
		}
	}
	var all []*worker
	for i, name := range []string{"web-1", "web-2", "web-3"} {
		w := startWorker(t, store.URL(), name)
		all = append(all, w)
		w.order("lock " + key)
		eventually(t, name+" is in line", claims("web-1", i))
	}
	for i, w := range all {
		eventually(t, w.name+" holds the key", claims(w.name, len(all)-1-i))
		if *draw != "" {
			time.Sleep(300 * time.Millisecond) // real time: for the eye
		}
		w.order("release " + key)
	}
	var traces []map[string]span
	for _, w := range all {
		traces = append(traces, w.end())
	}
	for i, spans := range traces {
		job, wait, hold := spans["job"], spans["fencelock wait"], spans["fencelock hold"]
		if job.ID == "" || wait.Parent != job.ID || hold.Parent != job.ID {
			t.Errorf("%s has the spans %+v", all[i].name, spans)
		}
		var want []string
		if i > 0 {
			want = []string{traces[0]["job"].ID}
		}
		if !slices.Equal(wait.Links, want) {
			t.Errorf("the wait of %s is linked to %q, want %q", all[i].name, wait.Links, want)
		}
	}
	if *draw != "" && !t.Failed() {
		for _, look := range themes {
			must(t, os.WriteFile(filepath.Join(*draw, "trace-"+look.name+".svg"), []byte(picture(look, all, traces)), 0o644))
		}
	}
}

// The picture, in pixels.
const (
	width, margin   = 600, 72
	laneHeight      = 84
	barTop, barTop2 = 12, 40
	barHeight       = 24
)

// A theme has the colours of light or dark pages.
type theme struct {
	name                            string
	paper, ink, job, wait, hold, to string
}

var themes = []theme{
	{"light", "#ffffff", "#1f2328", "#d7e3f4", "#f4d9a8", "#a9d8b0", "#cf222e"},
	{"dark", "#0d1117", "#f0f6fc", "#1f3a5f", "#6b4a12", "#1b5e2c", "#ff7b72"},
}

// picture draws one lane for each process, with its spans along the time and its links.
func picture(look theme, all []*worker, traces []map[string]span) string {
	begun, ended := traces[0]["job"].Start, traces[0]["job"].End
	for _, spans := range traces {
		if end := spans["job"].End; end.After(ended) {
			ended = end
		}
	}
	x := func(at time.Time) int {
		return margin + int(float64(width-margin-10)*float64(at.Sub(begun))/float64(ended.Sub(begun)))
	}
	var b strings.Builder
	height := laneHeight*len(all) - 8
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `+
		`font-family="system-ui, sans-serif" font-size="15" fill="%s">`+"\n", width, height, width, height, look.ink)
	fmt.Fprintf(&b, `<title>Three processes on one key: spans, and links to the job that was in the way</title>
<defs><marker id="to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="%s"/></marker></defs>
<rect width="100%%" height="100%%" rx="8" fill="%s"/>
`, look.to, look.paper)
	bar := func(s span, label, fill string, top int) {
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" rx="3" fill="%s"/><text x="%d" y="%d">%s %d ms</text>`+"\n",
			x(s.Start), top, max(x(s.End)-x(s.Start), 2), barHeight, fill, x(s.Start)+6, top+17, label, s.End.Sub(s.Start).Milliseconds())
	}
	for i, spans := range traces {
		top := i * laneHeight
		fmt.Fprintf(&b, `<text x="12" y="%d" font-weight="600">%s</text>`+"\n", top+barTop+17, all[i].name)
		bar(spans["job"], "job", look.job, top+barTop)
		if wait := spans["fencelock wait"]; len(wait.Links) > 0 {
			bar(wait, "wait", look.wait, top+barTop2)
			from, to := min(x(wait.Start)+50+60*i, x(traces[0]["job"].End)-12), barTop+barHeight
			fmt.Fprintf(&b, `<path d="M%d %dL%d %d" stroke="%s" stroke-width="1.5" stroke-dasharray="5 4" fill="none" marker-end="url(#to)"/>`+"\n",
				from, top+barTop2, from, to+1, look.to)
		}
		bar(spans["fencelock hold"], "hold", look.hold, top+barTop2)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
