package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/fencelock/fencelock/drivertest/steps"
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
		if got != string(want) {
			t.Errorf("%s differs from what is played, first here:\n%s\nIf the play is right: go test ./cmd/fencelock-lab -run Pages -update-lab",
				name, firstDifference(got, string(want)))
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
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(unhurried(text))
}
