package console

import (
	"bytes"
	"embed"
	"net/http"
	"net/url"
	"strconv"
	"time"

	template "github.com/DataDog/datadog-agent/pkg/template/html"

	"github.com/fencelock/fencelock/internal/note"
)

//go:embed pages
var files embed.FS

// pages are the templates in each language. They call no methods: this fork of html/template
// has none of that, so that the linker can drop the methods that nothing else calls.
var pages = [...]*template.Template{english: parse(english), chinese: parse(chinese)}

func parse(l language) *template.Template {
	funcs := template.FuncMap{
		"t":       func(id string, args ...any) string { return say(l, id, args...) },
		"n":       func(id string, n int) string { return count(l, id, n) },
		"shown":   shown,
		"span":    func(d time.Duration) string { return span(l, d) },
		"seconds": func(d time.Duration) string { return seconds(l, d) },
		"ms":      func(d time.Duration) int64 { return max(d, 0).Milliseconds() },
		"clock":   clock,
		"none":    time.Time.IsZero,
		"moment":  moment,
		"note":    func(stored string) string { return note.Parse(stored).Text },
		"slot":    func(stored string) string { return slotOf(l, note.Parse(stored).Slot) },
		"owner": func(name string) string {
			if name == "" {
				return say(l, "nobody")
			}
			return shown(name)
		},
	}
	return template.Must(template.New("").Funcs(funcs).ParseFS(files, "pages/*.html"))
}

// page is what all pages have.
type page struct {
	Title     string
	Store     string
	Lang      string // tag
	Languages []switchTo
	Visitor   string // name; empty: nobody signed in
	Form      string // token of forms
	Refresh   int    // seconds; without the script, the page is loaded again after them
	Stream    string // address of the stream of changes
}

// switchTo is a link to this page in a language.
type switchTo struct {
	Name, Tag, Href string
	Current         bool
}

func (v *visit) page(titleID string, args ...any) page {
	p := page{Title: say(v.lang, titleID, args...), Store: v.c.o.Store, Lang: tags[v.lang], Form: v.formToken()}
	if v.who != nil {
		p.Visitor = v.who.Name
	}
	to, q := "", v.URL.Query()
	if v.URL.Path == "/sign-in" || v.URL.Path == "/open" {
		to, q = "./", url.Values{} // those addresses are not for a second visit
	}
	for l, name := range names {
		q.Set("lang", tags[l])
		p.Languages = append(p.Languages, switchTo{name, tags[l], to + "?" + q.Encode(), language(l) == v.lang})
	}
	return p
}

// render answers with a page.
func (v *visit) render(status int, name string, data any) {
	var b bytes.Buffer
	if err := pages[v.lang].ExecuteTemplate(&b, name+".html", data); err != nil {
		panic(err) // a test renders every template
	}
	h := v.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	v.w.WriteHeader(status)
	if v.Method != http.MethodHead {
		_, _ = v.w.Write(b.Bytes())
	}
}

// refusal is a page that says why there is nothing else.
type refusal struct {
	page
	Do   string
	Back string // address to go on at
}

// refuse answers with the texts refused.why and refused.why.do.
func (v *visit) refuse(status int, why string) {
	id := "refused." + why
	v.render(status, "refused", &refusal{page: v.page(id), Do: say(v.lang, id+".do"), Back: "./"})
}

// keyHref is the address of the page of a key. A key is any bytes.
func keyHref(key string) string { return "key?key=" + url.QueryEscape(key) }
