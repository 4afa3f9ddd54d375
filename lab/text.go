package lab

import (
	_ "embed"
	"fmt"
	"strings"
)

// Lang is a language that the lab speaks.
type Lang string

// The languages.
const (
	English Lang = "en"
	Chinese Lang = "zh"
)

// ParseLang reads a language, or a locale such as zh_CN.UTF-8. The answer is false if
// the lab does not speak it.
func ParseLang(s string) (Lang, bool) {
	s = strings.ToLower(s)
	for _, l := range []Lang{English, Chinese} {
		if rest, ok := strings.CutPrefix(s, string(l)); ok && (rest == "" || strings.ContainsAny(rest[:1], "_-.@")) {
			return l, true
		}
	}
	return English, false
}

// Text says one thing in every language.
type Text struct{ EN, ZH string }

// In returns the text in one language.
func (t Text) In(l Lang) string {
	if l == Chinese {
		return t.ZH
	}
	return t.EN
}

// same is text that needs no translation: a command and its reply.
func same(s string) Text { return Text{s, s} }

// Story is what an experiment says of itself.
type Story struct {
	Title  Text // names the scheme
	Taught Text // where
	Flaw   Text // what goes wrong
	Cure   Text // what fencelock does instead
	Note   Text // what the comparison does not show, or nothing
}

//go:embed text/en.txt
var english string

//go:embed text/zh.txt
var chinese string

// texts are the paragraphs of a language. The first goes with every experiment, and each other
// one is of an experiment. Their lines are "name: text".
var texts = map[Lang][]string{
	English: strings.Split(english, "\n\n"),
	Chinese: strings.Split(chinese, "\n\n"),
}

// Say returns a text that goes with every experiment, with args in it.
func (l Lang) Say(name string, args ...any) string {
	return fmt.Sprintf(line(texts[l][0], name), args...)
}

// story is what the n-th experiment says of itself.
func story(n int) Story {
	of := func(name string) Text { return Text{line(texts[English][n], name), line(texts[Chinese][n], name)} }
	return Story{of("title"), of("taught"), of("flaw"), of("cure"), of("note")}
}

// line is what a paragraph has for a name.
func line(paragraph, name string) string {
	_, rest, _ := strings.Cut(paragraph, "\n"+name+": ")
	text, _, _ := strings.Cut(rest, "\n")
	return text
}
