package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/internal/terminal"
	"github.com/fencelock/fencelock/lab"
)

// docs/lab.md and its twin show every experiment as it is played.
func TestPagesShowWhatIsPlayed(t *testing.T) {
	logging.Disable() // nodes that cannot be reached are part of the play
	all := lab.All()
	played := make([]lab.Result, len(all))
	var wg sync.WaitGroup
	for i, e := range all {
		wg.Go(func() {
			var err error
			if played[i], err = e.Play(t.Context(), t.TempDir()); err != nil || !played[i].AsTold(e) {
				t.Errorf("scheme %d did not go as the text says: %v", e.Number, err)
			}
			// Two schemes are about the quorum, where fencelock does not promise that one alone holds the lock.
			excused := played[i].Ours.Excused
			overlaps := e.Number == 7 || e.Number == 8
			if (len(excused) > 0) != overlaps || overlaps && e.Note.EN == "" {
				t.Errorf("scheme %d: excused is %v, and the note says %q", e.Number, excused, e.Note.EN)
			}
		})
	}
	wg.Wait()
	checkPictures(t, all, played)
	for l, name := range map[lab.Lang]string{lab.English: "lab.md", lab.Chinese: "lab.zh-CN.md"} {
		name = filepath.Join("..", "..", "..", "docs", name)
		got := page(all, played, l)
		if *updateGolden {
			steps.Must(t, os.WriteFile(name, []byte(got), 0o600))
		}
		want, err := os.ReadFile(name)
		steps.Must(t, err)
		if got, want := timeless(got), timeless(string(want)); got != want {
			t.Errorf("%s differs from what is played, first here:\n%s\nIf the play is right: go test ./cmd/fencelock-lab -run Pages -update-lab",
				name, firstDifference(got, want))
		}
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			return fmt.Sprintf("line %d\nplayed  %s\non page %s", i+1, g[i], strings.Join(w[min(i, len(w)-1):min(i+1, len(w))], ""))
		}
	}
	return "the page has more lines"
}

// page returns the page of a language.
func page(all []lab.Experiment, played []lab.Result, l lab.Lang) string {
	var b strings.Builder
	b.WriteString(l.Say("page") + "\n\n" + l.Say("pageOther") + "\n\n")
	b.WriteString(strings.ReplaceAll(l.Say("pageIntro"), "¶", "\n\n") + "\n\n")
	fmt.Fprintf(&b, "| | %s | %s |\n| --: | --- | --- |\n", l.Say("pageScheme"), l.Say("pageBreaks"))
	for _, e := range all {
		var breaks []string
		for _, r := range e.Breaks {
			breaks = append(breaks, l.Say(string(r)))
		}
		fmt.Fprintf(&b, "| %d | [%s](#scheme-%d) | %s |\n", e.Number, tokens{}.cell(e.Title.In(l)), e.Number, strings.Join(breaks, lab.Text{EN: "; ", ZH: "；"}.In(l)))
	}
	for i, e := range all {
		fmt.Fprintf(&b, "\n<a id=\"scheme-%d\"></a>\n\n## %d. %s\n\n", e.Number, e.Number, strings.ReplaceAll(e.Title.In(l), "<", `\<`))
		b.WriteString(l.Say("taught", e.Taught.In(l)) + "\n\n")
		fmt.Fprintf(&b, `<picture><source media="(prefers-color-scheme: dark)" srcset="%s"><img alt="%s" src="%s"></picture>`+"\n\n",
			pictureName(e.Number, themes[1]), l.Say("picture", strconv.Itoa(e.Number)), pictureName(e.Number, themes[0]))
		b.WriteString(pageRun(played[i].Scheme, l) + "\n")
		b.WriteString(bold(l.Say("why", e.Flaw.In(l))) + "\n\n")
		b.WriteString(bold(l.Say("cure", e.Cure.In(l))) + "\n")
		if note := e.Note.In(l); note != "" {
			b.WriteString("\n" + bold(l.Say("note", note)) + "\n")
		}
		fmt.Fprintf(&b, "\n<details><summary>%s</summary>\n\n%s\n</details>\n", l.Say("ours"), pageRun(played[i].Ours, l))
	}
	return b.String()
}

// bold sets the words before the first colon in bold.
func bold(text string) string {
	return regexp.MustCompile(`^([^:：]+)([:：])`).ReplaceAllString(text, "**$1$2**")
}

// pageRun returns a run as a table: the step, client A, client B, the store.
func pageRun(r lab.Run, l lab.Lang) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | %s | %s | %s |\n| --: | --- | --- | --- |\n", l.Say("a"), l.Say("b"), l.Say("holds"))
	k := tokens{}
	for i, s := range r.Steps {
		what, column := k.cell(s.Text.In(l)), 1
		switch s.Actor {
		case "":
			what, column = "*"+what+"*", 0
		case "A":
			column = 0
		case "B":
		default:
			what = s.Actor + ": " + what
		}
		for _, call := range s.Calls {
			what += "<br>" + k.code(call)
		}
		for _, rule := range s.Broke {
			what += "<br>**⚠ " + l.Say(string(rule)) + "**"
		}
		var holds []string
		for _, h := range s.Holds {
			holds = append(holds, k.code(h.In(l)))
		}
		cells := [2]string{}
		cells[column] = what
		fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", i+1, cells[0], cells[1], cmp.Or(strings.Join(holds, "<br>"), l.Say("empty")))
	}
	return b.String()
}

// tokens gives the clock's tokens of one play numbers that are the same in every play.
type tokens map[string]string

func (k tokens) code(text string) string { return "`" + k.cell(text) + "`" }

// cell is text that may stand in a table.
func (k tokens) cell(text string) string {
	text = clockToken.ReplaceAllStringFunc(text, func(token string) string {
		if k[token] == "" {
			k[token] = strconv.Itoa(1795000000000001 + len(k))
		}
		return k[token]
	})
	// The seconds that are left are rounded up to tens, as if the play had taken no time.
	text = secondsOf.ReplaceAllStringFunc(text, func(left string) string {
		n, _ := strconv.Atoi(strings.Trim(left, " (s)"))
		return fmt.Sprintf(" (%ds)", (n+9)/10*10)
	})
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text)
}

// A theme has the colours of light or dark pages, those of verify/cmd/pictures.
type theme struct {
	name                    string
	paper, ink, muted, rule string
	holds, waits, lost      string
}

var themes = []theme{
	{"light", "#ffffff", "#1f2328", "#59636e", "#d1d9e0", "#1a7f37", "#8c959f", "#cf222e"},
	{"dark", "#0d1117", "#f0f6fc", "#9198a1", "#3d444d", "#3fb950", "#767e88", "#ff7b72"},
}

// The sizes of a picture: it is never wider than a page, and readable on a telephone.
const (
	width  = 600
	left   = 44 // of the first step
	lane   = 34
	header = 34
)

// drawing draws one experiment: the scheme above, fencelock below. A column is a step of the
// table, and a line shows the beliefs of a client.
type drawing struct {
	theme
	strings.Builder
}

func draw(t theme, r lab.Result) string {
	d := &drawing{theme: t}
	y := d.run(r.Scheme, 8, "✗", d.lost)
	y = d.run(r.Ours, y+10, "✓", d.holds)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `+
		`font-family="Inter, system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif" font-size="18">`+"\n"+
		`<rect width="%d" height="%d" rx="8" fill="%s"/>`+"\n%s</svg>\n", width, y, width, y, width, y, d.paper, d.String())
}

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

func (d *drawing) text(x, y int, colour, text string) {
	d.add(`<text x="%d" y="%d" text-anchor="middle" fill="%s">%s</text>`, x, y, colour, text)
}

// run draws a run below y, and returns where it ends.
func (d *drawing) run(r lab.Run, y int, sign, colour string) int {
	step := (width - left - 12) / max(len(r.Steps), 6)
	actors := []string{"A", "B"}
	if slices.ContainsFunc(r.Steps, func(s lab.Step) bool { return s.Actor == "C" }) {
		actors = append(actors, "C")
	}
	end := y + header + lane*len(actors)
	d.add(`<text x="20" y="%d" text-anchor="middle" font-weight="700" fill="%s">%s</text>`, y+22, colour, sign)
	for i, a := range actors {
		d.text(20, y+header+lane*i+22, d.ink, a)
	}
	for i, beliefs := range r.Beliefs() {
		x, s := left+step*i, r.Steps[i]
		numbered, broke := d.muted, ""
		if len(s.Broke) > 0 {
			numbered, broke = d.lost, "⚠"
		}
		d.text(x+step/2, y+22, numbered, fmt.Sprint(i+1)+broke)
		d.add(`<path d="M%d %dV%d" stroke="%s"/>`, x, y+6, end, d.rule)
		for n, a := range actors {
			d.cell(x, y+header+lane*n, step, beliefs[a], s.Actor == a)
		}
	}
	return end + 8
}

// cell draws what a client believes at the end of a step, with a dot if the step is its own.
func (d *drawing) cell(x, y, step int, b lab.Belief, acts bool) {
	middle := y + 16
	switch b {
	case lab.Holds:
		d.add(`<path d="M%d %dh%d" stroke="%s" stroke-width="14"/>`, x, middle, step, d.holds)
	case lab.Clashes:
		d.add(`<path d="M%d %dh%d" stroke="%s" stroke-width="22"/>`, x, middle, step, d.lost)
	case lab.Stopped:
		d.add(`<path d="M%d %dh%d" stroke="%s" stroke-width="14" stroke-dasharray="3 6"/>`, x, middle, step, d.waits)
	case lab.Waits:
		d.add(`<path d="M%d %dh%d" stroke="%s" stroke-width="5" stroke-dasharray="6 5"/>`, x, middle, step, d.waits)
	}
	if acts {
		d.add(`<circle cx="%d" cy="%d" r="5" fill="%s" stroke="%s" stroke-width="2"/>`, x+step/2, middle, d.paper, d.ink)
	}
}

// pictureName is the file of a picture, as docs/lab.md names it.
func pictureName(number int, t theme) string {
	return fmt.Sprintf("images/lab/%02d-%s.svg", number, t.name)
}

// checkPictures compares the pictures of docs/lab.md with what was played, or writes them.
func checkPictures(t *testing.T, all []lab.Experiment, played []lab.Result) {
	t.Helper()
	for i, e := range all {
		for _, theme := range themes {
			name := filepath.Join("..", "..", "..", "docs", filepath.FromSlash(pictureName(e.Number, theme)))
			got := draw(theme, played[i])
			if *updateGolden {
				steps.Must(t, os.WriteFile(name, []byte(got), 0o600))
			}
			if want, err := os.ReadFile(name); err != nil || string(want) != got {
				t.Errorf("%s differs from what is played: %v", name, err)
			}
		}
	}
}

func TestWrapKeepsToItsColumns(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want []string
	}{
		{"", 10, []string{""}},
		{"takes the lock", 10, []string{"takes the", "lock"}},
		{"takes the lock", 9, []string{"takes the", "lock"}},
		{"1795264791914992", 7, []string{"1795264", "7919149", "92"}},
		{"a 1795264791914992", 7, []string{"a", "1795264", "7919149", "92"}},
		{"拿到锁，写入", 6, []string{"拿到", "锁，写", "入"}},
		{"拿到锁，写入", 8, []string{"拿到锁，", "写入"}},
		{"到期限时得到通知", 7, []string{"到期限", "时得到", "通知"}},
		{"执行 EXPIRE 就", 12, []string{"执行 EXPIRE", "就"}},
		{"（旧的）写", 6, []string{"（旧", "的）写"}},
		{"x → y", 4, []string{"x →", "y"}},
	} {
		got := wrap(c.text, c.most)
		if !slices.Equal(got, c.want) {
			t.Errorf("%q in %d columns: %q, want %q", c.text, c.most, got, c.want)
		}
		for _, line := range got {
			if terminal.Columns(line) > c.most {
				t.Errorf("%q is wider than %d", line, c.most)
			}
		}
	}
}

func TestWhatDidNotGoAsToldIsSaid(t *testing.T) {
	e := lab.All()[3]
	var b strings.Builder
	broken := lab.Run{Violations: []history.Violation{{Rule: history.Exclusion}}}
	r := lab.Result{Ours: broken}
	if r.AsTold(e) || (lab.Result{Scheme: broken, Ours: broken}).AsTold(e) || !(lab.Result{Scheme: broken}).AsTold(e) {
		t.Error("AsTold is wrong")
	}
	steps.Must(t, showPlay(&b, e, r, lab.English))
	if want := "NOT as told: the scheme broke nothing (told: I1), fencelock broke I1.\n"; !strings.HasSuffix(b.String(), want) {
		t.Errorf("got %s", b.String())
	}
}

func TestLabSpeaksTheLanguageOfTheLocale(t *testing.T) {
	for _, c := range []struct {
		asked, all, messages, lang string
		want                       lab.Lang
	}{
		{"", "", "", "", lab.English},
		{"", "", "", "zh_CN.UTF-8", lab.Chinese},
		{"", "", "", "zh-TW", lab.Chinese},
		{"", "", "", "zhuang", lab.English},
		{"", "", "zh_CN.UTF-8", "en_US.UTF-8", lab.Chinese},
		{"", "C", "", "zh_CN.UTF-8", lab.English},
		{"en", "zh_CN", "", "", lab.English},
		{"zh", "", "", "", lab.Chinese},
	} {
		t.Setenv("LC_ALL", c.all)
		t.Setenv("LC_MESSAGES", c.messages)
		t.Setenv("LANG", c.lang)
		if got, err := language(c.asked); got != c.want || err != nil {
			t.Errorf("%+v: %v %v", c, got, err)
		}
	}
	var own *failure
	for _, asked := range []string{"fr", "english", "zhuang"} {
		if _, err := language(asked); !errors.As(err, &own) || own.code != exitUsage {
			t.Errorf("--lang %s: %v", asked, err)
		}
	}
}
