package main

import (
	"strings"
	"unicode"

	"github.com/fencelock/fencelock/internal/terminal"
)

// wrap breaks text into lines of at most that many columns of a terminal: between
// words, and between Chinese characters, but not before a closing mark.
func wrap(text string, most int) []string {
	var lines []string
	line, n := "", 0
	for _, piece := range pieces(text, most) {
		if width := terminal.Columns(strings.TrimRight(piece, " ")); n+width > most {
			lines = append(lines, strings.TrimRight(line, " "))
			line, n = "", 0
		}
		line += piece
		n += terminal.Columns(piece)
	}
	return append(lines, strings.TrimRight(line, " "))
}

// pieces are what a line may be broken between: a word with the space behind it, or a
// wide character with the marks behind it. A word that is longer than a line is several.
func pieces(text string, most int) []string {
	var all []string
	wideBefore, spaceBefore := false, true
	for _, r := range text {
		opens := strings.ContainsRune("（《“「", r)
		mark := unicode.IsPunct(r) && terminal.Wide(r) && !opens || strings.ContainsRune("”…", r)
		last := len(all) - 1
		fits := last >= 0 && terminal.Columns(all[last]+string(r)) <= most
		inWord := !terminal.Wide(r) && !wideBefore && !spaceBefore
		if last >= 0 && r == ' ' || fits && (mark || inWord) {
			all[last] += string(r)
		} else {
			all = append(all, string(r))
		}
		spaceBefore, wideBefore = r == ' ', terminal.Wide(r)
	}
	return all
}
