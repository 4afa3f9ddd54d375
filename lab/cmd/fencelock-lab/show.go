package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/internal/terminal"
	"github.com/fencelock/fencelock/lab"
)

func verdict(rules []history.Rule, l lab.Lang) string {
	var all []string
	for _, r := range rules {
		all = append(all, string(r)+" "+ruleTexts[r].In(l))
	}
	return strings.Join(all, "; ")
}

func ruleNames(rules []history.Rule, l lab.Lang) string {
	if len(rules) == 0 {
		return text("nothing", l)
	}
	var all []string
	for _, r := range rules {
		all = append(all, string(r))
	}
	return strings.Join(all, ", ")
}

func list(w io.Writer, l lab.Lang) error {
	rows := [][]string{{"#", text("scheme", l), text("verdict", l), text("taughtAt", l)}}
	for _, e := range lab.All() {
		rows = append(rows, []string{strconv.Itoa(e.Number), e.Title.In(l), verdict(e.Breaks, l), e.Taught.In(l)})
	}
	if err := terminal.Table(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", text("list", l))
	return err
}

// Widths of the columns of a play.
const (
	actorWidth = 30
	storeWidth = 34
	lineWidth  = 3 + actorWidth + 2 + actorWidth + 2 + storeWidth
)

// showPlay shows how an experiment went.
func showPlay(w io.Writer, e lab.Experiment, r lab.Result, l lab.Lang) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d  %s\n", e.Number, e.Title.In(l))
	paragraph(&b, text("taught", l)+e.Taught.In(l))
	paragraph(&b, text("clock", l))
	b.WriteString("\n" + text("theirs", l) + "\n\n")
	showRun(&b, r.Scheme, l)
	b.WriteString("\n")
	paragraph(&b, text("why", l)+e.Flaw.In(l))
	b.WriteString("\n" + text("ours", l) + "\n\n")
	showRun(&b, r.Ours, l)
	b.WriteString("\n")
	paragraph(&b, text("cure", l)+e.Cure.In(l))
	if note := e.Note.In(l); note != "" {
		paragraph(&b, text("note", l)+note)
	}
	b.WriteString("\n")
	broken, ours := ruleNames(r.Scheme.Broken(), l), ruleNames(r.Ours.Broken(), l)
	if r.AsTold(e) {
		paragraph(&b, fmt.Sprintf(text("asTold", l), broken))
	} else {
		paragraph(&b, fmt.Sprintf(text("notTold", l), broken, ruleNames(e.Breaks, l), ours))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func paragraph(b *strings.Builder, text string) {
	for _, line := range wrap(text, lineWidth) {
		b.WriteString(line + "\n")
	}
}

// showRun shows a run in columns: the step, client A, client B, the store. Whoever
// is neither A nor B is named, in the column of B; what happens to everybody begins
// with A.
func showRun(b *strings.Builder, r lab.Run, l lab.Lang) {
	row(b, "", []string{text("a", l)}, []string{text("b", l)}, []string{text("holds", l)})
	for i, s := range r.Steps {
		what := s.Text.In(l)
		var one, two, store []string
		switch s.Actor {
		case "":
			one = wrap("~ "+what, actorWidth)
		case "A":
			one = wrap(what, actorWidth)
		case "B":
			two = wrap(what, actorWidth)
		default:
			two = wrap(s.Actor+": "+what, actorWidth)
		}
		for _, call := range s.Calls {
			lines := indent(wrap(call, actorWidth-2))
			if s.Actor == "A" {
				one = append(one, lines...)
			} else {
				two = append(two, lines...)
			}
		}
		for _, h := range s.Holds {
			store = append(store, wrap(h.In(l), storeWidth)...)
		}
		if len(store) == 0 {
			store = []string{text("empty", l)}
		}
		row(b, strconv.Itoa(i+1), one, two, store)
		for _, rule := range s.Broke {
			fmt.Fprintf(b, "   ^^^ %s%s: %s\n", text("broke", l), rule, ruleTexts[rule].In(l))
		}
	}
}

// row writes cells side by side.
func row(b *strings.Builder, number string, cells ...[]string) {
	most := 1
	for _, c := range cells {
		most = max(most, len(c))
	}
	for i := range most {
		line := fmt.Sprintf("%-3s", number)
		number = ""
		for n, c := range cells {
			text := ""
			if i < len(c) {
				text = c[i]
			}
			if n > 0 {
				line += "  "
			}
			line += text + strings.Repeat(" ", max(actorWidth-terminal.Columns(text), 0))
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

func indent(lines []string) []string {
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}
