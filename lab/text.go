package lab

import (
	"embed"
	"strconv"
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

//go:embed text/en.txt text/zh.txt
var textFiles embed.FS

// story is what an experiment says of itself.
type story struct{ title, taught, flaw, cure, note Text }

// stories are those of all experiments, by number.
var stories = sync.OnceValue(func() map[int]story {
	all := map[int]story{}
	english, chinese := readStories("text/en.txt"), readStories("text/zh.txt")
	for n, en := range english {
		of := func(field string) Text { return Text{en[field], chinese[n][field]} }
		all[n] = story{of("title"), of("taught"), of("flaw"), of("cure"), of("note")}
	}
	return all
})

// readStories returns the fields of each experiment in a file, by number.
func readStories(name string) map[int]map[string]string {
	text, err := textFiles.ReadFile(name)
	if err != nil {
		panic(err) // the file is embedded
	}
	all := map[int]map[string]string{}
	number := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if n, err := strconv.Atoi(line); err == nil {
			number, all[n] = n, map[string]string{}
		} else if field, value, ok := strings.Cut(line, ": "); ok && number > 0 {
			all[number][field] = value
		}
	}
	return all
}
