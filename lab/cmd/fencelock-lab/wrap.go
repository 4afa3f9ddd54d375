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
	for _, piece := range pieces(text) {
		for terminal.Columns(piece) > most { // one long word
			head := cut(piece, most-n)
			lines = append(lines, line+head)
			piece = piece[len(head):]
			line, n = "", 0
		}
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
// wide character with the marks behind it.
func pieces(text string) []string {
	var all []string
	wideBefore, spaceBefore := false, true
	for _, r := range text {
		opens := strings.ContainsRune("（《“「", r)
		mark := unicode.IsPunct(r) && terminal.Wide(r) && !opens || strings.ContainsRune("”…", r)
		joins := len(all) > 0 && (r == ' ' || mark || !terminal.Wide(r) && !wideBefore && !spaceBefore)
		if joins {
			all[len(all)-1] += string(r)
		} else {
			all = append(all, string(r))
		}
		spaceBefore, wideBefore = r == ' ', terminal.Wide(r)
	}
	return all
}

// cut is the beginning of a word that fits.
func cut(word string, most int) string {
	n := 0
	for i, r := range word {
		n += terminal.Columns(string(r))
		if n > most {
			return word[:i]
		}
	}
	return word
}
