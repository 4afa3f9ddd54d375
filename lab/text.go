package lab

import (
	_ "embed"
	"strings"
	"sync"
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

// stories are those of all experiments. A file has a paragraph for each, behind one that
// says so: its number, and "field: text" lines.
var stories = sync.OnceValue(func() (all []Story) {
	zh := strings.Split(chinese, "\n\n")
	for i, en := range strings.Split(english, "\n\n")[1:] {
		of := func(field string) Text { return Text{line(en, field), line(zh[i+1], field)} }
		all = append(all, Story{of("title"), of("taught"), of("flaw"), of("cure"), of("note")})
	}
	return all
})

// line is what a paragraph has for a field.
func line(paragraph, field string) string {
	_, rest, _ := strings.Cut(paragraph, "\n"+field+": ")
	text, _, _ := strings.Cut(rest, "\n")
	return text
}
