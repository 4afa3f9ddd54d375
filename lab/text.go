package lab

import "strings"

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
