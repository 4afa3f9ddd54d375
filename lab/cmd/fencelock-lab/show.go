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

func ruleNames(rules []history.Rule, l lab.Lang) string {
	if len(rules) == 0 {
		return l.Say("nothing")
	}
	var all []string
	for _, r := range rules {
		all = append(all, string(r))
	}
	return strings.Join(all, ", ")
}

func list(w io.Writer, l lab.Lang) error {
	rows := [][]string{{"#", l.Say("scheme"), l.Say("verdict"), l.Say("taughtAt")}}
	for _, e := range lab.All() {
		var verdict []string
		for _, r := range e.Breaks {
			verdict = append(verdict, string(r)+" "+l.Say(string(r)))
		}
		number := strconv.Itoa(e.Number)
		verdicts := strings.Join(verdict, lab.Text{EN: "; ", ZH: "；"}.In(l))
		rows = append(rows, []string{number, e.Title.In(l), verdicts, e.Taught.In(l)})
	}
	if err := terminal.Table(w, rows, nil); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", l.Say("list"))
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
	paragraph(&b, l.Say("taught", e.Taught.In(l)))
	paragraph(&b, l.Say("clock"))
	b.WriteString("\n" + l.Say("theirs") + "\n\n")
	showRun(&b, r.Scheme, l)
	b.WriteString("\n")
	paragraph(&b, l.Say("why", e.Flaw.In(l)))
	b.WriteString("\n" + l.Say("ours") + "\n\n")
	showRun(&b, r.Ours, l)
	b.WriteString("\n")
	paragraph(&b, l.Say("cure", e.Cure.In(l)))
	if note := e.Note.In(l); note != "" {
		paragraph(&b, l.Say("note", note))
	}
	b.WriteString("\n")
	broken, ours := ruleNames(r.Scheme.Broken(), l), ruleNames(r.Ours.Broken(), l)
	if r.AsTold(e) {
		paragraph(&b, l.Say("asTold", broken))
	} else {
		paragraph(&b, l.Say("notTold", broken, ruleNames(e.Breaks, l), ours))
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
	row(b, "", []string{l.Say("a")}, []string{l.Say("b")}, []string{l.Say("holds")})
	for i, s := range r.Steps {
		what, column := s.Text.In(l), 1
		switch s.Actor {
		case "":
			what, column = "~ "+what, 0
		case "A":
			column = 0
		case "B":
		default:
			what = s.Actor + ": " + what
		}
		var cells [3][]string
		cells[column] = wrap(what, actorWidth)
		for _, call := range s.Calls {
			for _, line := range wrap(call, actorWidth-2) {
				cells[column] = append(cells[column], "  "+line)
			}
		}
		for _, h := range s.Holds {
			cells[2] = append(cells[2], wrap(h.In(l), storeWidth)...)
		}
		if len(s.Holds) == 0 {
			cells[2] = []string{l.Say("empty")}
		}
		row(b, strconv.Itoa(i+1), cells[:]...)
		for _, rule := range s.Broke {
			fmt.Fprintf(b, "   ^^^ %s\n", l.Say("broke", rule, l.Say(string(rule))))
		}
	}
}

// row writes cells side by side.
func row(b *strings.Builder, number string, cells ...[]string) {
	for i := range max(len(cells[0]), len(cells[1]), len(cells[2])) {
		line := fmt.Sprintf("%-3s", number)
		number = ""
		for _, c := range cells {
			text := ""
			if i < len(c) {
				text = c[i]
			}
			line += text + strings.Repeat(" ", max(actorWidth-terminal.Columns(text), 0)+2)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}
