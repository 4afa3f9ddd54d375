package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/lab"
)

// labTexts are what the lab says beside the experiments.
var labTexts = map[string]lab.Text{
	"noRedis": {
		EN: "the lab plays on a real Redis, and redis-server is not installed; on Debian and Ubuntu: apt-get install redis-server; on macOS: brew install redis; elsewhere see https://redis.io/docs/latest/operate/oss_and_stack/install/",
		ZH: "实验要用真的 Redis，但没有安装 redis-server；Debian、Ubuntu：apt-get install redis-server；macOS：brew install redis；其他系统见 https://redis.io/docs/latest/operate/oss_and_stack/install/",
	},
	"starting": {
		EN: "starting a redis-server for this lab on loopback ports, in %s; it ends with the lab, and no store of yours is touched",
		ZH: "为实验启动单独的 redis-server（本机回环端口，目录 %s）；实验结束就关掉，不碰你的任何存储",
	},
	"wrong": {
		EN: "not everything behaved as the text says: scheme %s; play it again, and if it stays so, please report it",
		ZH: "有的结果和文字说的不一样：方案 %s；再运行一次，如果还是这样，请报告",
	},
	"list":     {EN: "Play one with fencelock lab N, all with --all. Each is played against fencelock as well.", ZH: "用 fencelock lab N 演示一个，--all 演示全部。每个都会用同样的步骤再考一遍 fencelock。"},
	"scheme":   {EN: "SCHEME", ZH: "方案"},
	"verdict":  {EN: "VERDICT", ZH: "结论"},
	"taughtAt": {EN: "TAUGHT IN", ZH: "出处"},
	"taught":   {EN: "Taught in: ", ZH: "出处："},
	"a":        {EN: "client A", ZH: "客户端 A"},
	"b":        {EN: "client B", ZH: "客户端 B"},
	"holds":    {EN: "the store holds", ZH: "存储里有"},
	"theirs":   {EN: "As it is taught", ZH: "教程的写法"},
	"ours":     {EN: "The same schedule against fencelock", ZH: "同样的步骤，换成 fencelock"},
	"broke":    {EN: "BROKEN ", ZH: "出事 "},
	"why":      {EN: "Why: ", ZH: "原因："},
	"cure":     {EN: "What prevents it: ", ZH: "如何避免："},
	"note":     {EN: "What is compared: ", ZH: "比较范围："},
	"asTold":   {EN: "As told: the scheme breaks %s, fencelock keeps what is judged.", ZH: "与文字一致：该方案破坏了 %s，fencelock 守住了所判的规则。"},
	"notTold":  {EN: "NOT as told: the scheme broke %s (told: %s), fencelock broke %s.", ZH: "与文字不一致：该方案破坏了 %s（应为 %s），fencelock 破坏了 %s。"},
	"nothing":  {EN: "nothing", ZH: "无"},
	"empty":    {EN: "–", ZH: "–"},
}

func labText(name string, l lab.Lang) string { return labTexts[name].In(l) }

// ruleTexts say in a few words what it means that a rule is broken.
var ruleTexts = map[history.Rule]lab.Text{
	history.Exclusion:  {EN: "two are inside at once", ZH: "两个同时持有"},
	history.Tokens:     {EN: "a token comes twice", ZH: "token 重复"},
	history.Fence:      {EN: "an old write is accepted after a new one", ZH: "旧的写入盖掉新的"},
	history.Stuck:      {EN: "stuck for ever", ZH: "永远卡死"},
	history.WakeUp:     {EN: "nobody wakes the waiter", ZH: "等待者没人叫醒"},
	history.Reentrancy: {EN: "an entry is not counted", ZH: "重入少数了一次"},
	history.ReadWrite:  {EN: "a writer beside a reader", ZH: "读者还在，写者进来了"},
	history.Semaphore:  {EN: "more permits than there are", ZH: "发出的许可超过总数"},
}

func verdict(rules []history.Rule, l lab.Lang) string {
	var all []string
	for _, r := range rules {
		all = append(all, string(r)+" "+ruleTexts[r].In(l))
	}
	return strings.Join(all, "; ")
}

func ruleNames(rules []history.Rule, l lab.Lang) string {
	if len(rules) == 0 {
		return labText("nothing", l)
	}
	var all []string
	for _, r := range rules {
		all = append(all, string(r))
	}
	return strings.Join(all, ", ")
}

func listLab(w io.Writer, l lab.Lang) error {
	rows := [][]string{{"#", labText("scheme", l), labText("verdict", l), labText("taughtAt", l)}}
	for _, e := range lab.All() {
		rows = append(rows, []string{strconv.Itoa(e.Number), e.Title.In(l), verdict(e.Breaks, l), e.Taught.In(l)})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", labText("list", l))
	return err
}

// Widths of the columns of a play.
const (
	labActor = 30
	labStore = 34
	labWidth = 3 + labActor + 2 + labActor + 2 + labStore
)

// showPlay shows how an experiment went.
func showPlay(w io.Writer, e lab.Experiment, r lab.Result, told bool, l lab.Lang) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d  %s\n", e.Number, e.Title.In(l))
	paragraph(&b, labText("taught", l)+e.Taught.In(l))
	b.WriteString("\n" + labText("theirs", l) + "\n\n")
	showRun(&b, r.Scheme, l)
	b.WriteString("\n")
	paragraph(&b, labText("why", l)+e.Flaw.In(l))
	b.WriteString("\n" + labText("ours", l) + "\n\n")
	showRun(&b, r.Ours, l)
	b.WriteString("\n")
	paragraph(&b, labText("cure", l)+e.Cure.In(l))
	if note := e.Note.In(l); note != "" {
		paragraph(&b, labText("note", l)+note)
	}
	b.WriteString("\n")
	broken, ours := ruleNames(r.Scheme.Broken(), l), ruleNames(r.Ours.Broken(), l)
	if told {
		paragraph(&b, fmt.Sprintf(labText("asTold", l), broken))
	} else {
		paragraph(&b, fmt.Sprintf(labText("notTold", l), broken, ruleNames(e.Breaks, l), ours))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func paragraph(b *strings.Builder, text string) {
	for _, line := range wrap(text, labWidth) {
		b.WriteString(line + "\n")
	}
}

// showRun shows a run in columns: the step, client A, client B, the store. Whoever
// is neither A nor B is named, in the column of B; what happens to everybody begins
// with A.
func showRun(b *strings.Builder, r lab.Run, l lab.Lang) {
	row(b, "", []string{labText("a", l)}, []string{labText("b", l)}, []string{labText("holds", l)})
	for i, s := range r.Steps {
		text := s.Text.In(l)
		var one, two, store []string
		switch s.Actor {
		case "":
			one = wrap("~ "+text, labActor)
		case "A":
			one = wrap(text, labActor)
		case "B":
			two = wrap(text, labActor)
		default:
			two = wrap(s.Actor+": "+text, labActor)
		}
		for _, call := range s.Calls {
			lines := indent(wrap(call, labActor-2))
			if s.Actor == "A" {
				one = append(one, lines...)
			} else {
				two = append(two, lines...)
			}
		}
		for _, h := range s.Holds {
			store = append(store, wrap(h.In(l), labStore)...)
		}
		if len(store) == 0 {
			store = []string{labText("empty", l)}
		}
		row(b, strconv.Itoa(i+1), one, two, store)
		for _, rule := range s.Broke {
			fmt.Fprintf(b, "   ^^^ %s%s: %s\n", labText("broke", l), rule, ruleTexts[rule].In(l))
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
			line += text + strings.Repeat(" ", max(labActor-columns(text), 0))
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

// wrap breaks text into lines of at most that many columns of a terminal: between
// words, and between Chinese characters, but not before a closing mark.
func wrap(text string, most int) []string {
	var lines []string
	line, n := "", 0
	for _, piece := range pieces(text) {
		for columns(piece) > most { // one long word
			head := cut(piece, most-n)
			lines = append(lines, line+head)
			piece = piece[len(head):]
			line, n = "", 0
		}
		if width := columns(strings.TrimRight(piece, " ")); n+width > most {
			lines = append(lines, strings.TrimRight(line, " "))
			line, n = "", 0
		}
		line += piece
		n += columns(piece)
	}
	return append(lines, strings.TrimRight(line, " "))
}

// pieces are what a line may be broken between: a word with the space behind it, or a
// wide character with the marks behind it.
func pieces(text string) []string {
	var all []string
	wideBefore, spaceBefore := false, true
	for _, r := range text {
		mark := unicode.IsPunct(r) && wide(r) && !strings.ContainsRune("（《“「", r) || strings.ContainsRune("”…", r)
		joins := len(all) > 0 && (r == ' ' || mark || !wide(r) && !wideBefore && !spaceBefore)
		if joins {
			all[len(all)-1] += string(r)
		} else {
			all = append(all, string(r))
		}
		spaceBefore, wideBefore = r == ' ', wide(r)
	}
	return all
}

// cut is the beginning of a word that fits.
func cut(word string, most int) string {
	n := 0
	for i, r := range word {
		n += columns(string(r))
		if n > most {
			return word[:i]
		}
	}
	return word
}
