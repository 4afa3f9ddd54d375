package console

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// language is one of those that the pages are written in.
type language int

const (
	english language = iota
	chinese
)

// tags are the languages' names in HTML, and in links that switch to them.
var tags = [...]string{english: "en", chinese: "zh-CN"}

// names are the languages' names in themselves.
var names = [...]string{english: "English", chinese: "简体中文"}

//go:embed texts.json
var textsFile []byte

// texts are all texts of the pages in each language.
var texts = func() (t map[string][len(tags)]string) {
	if err := json.Unmarshal(textsFile, &t); err != nil {
		panic(err) // it is embedded
	}
	return t
}()

// languageOf finds the language of the pages: a link that switches comes first, then what was
// switched to before, then what the browser asks for.
func languageOf(w http.ResponseWriter, r *http.Request) language {
	if l, ok := languageNamed(r.URL.Query().Get("lang")); ok {
		if cookieOf(r, cookieLang) != tags[l] {
			setCookie(w, r, cookieLang, tags[l])
		}
		return l
	}
	if l, ok := languageNamed(cookieOf(r, cookieLang)); ok {
		return l
	}
	w.Header().Add("Vary", "Accept-Language")
	return preferred(r.Header.Get("Accept-Language"))
}

// languageNamed reads a tag such as zh or en-GB.
func languageNamed(tag string) (language, bool) {
	main, _, _ := strings.Cut(strings.ToLower(tag), "-")
	switch main {
	case "en":
		return english, true
	case "zh":
		return chinese, true
	}
	return english, false
}

// preferred reads an Accept-Language header.
func preferred(header string) language {
	best, weight := english, 0.0
	for part := range strings.SplitSeq(header, ",") {
		tag, rest, _ := strings.Cut(strings.TrimSpace(part), ";")
		q := 1.0
		if text, ok := strings.CutPrefix(strings.TrimSpace(rest), "q="); ok {
			q, _ = strconv.ParseFloat(text, 64)
		}
		if l, ok := languageNamed(strings.TrimSpace(tag)); ok && q > weight {
			best, weight = l, q
		}
	}
	return best
}
