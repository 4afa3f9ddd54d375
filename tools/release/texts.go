package main

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"regexp"
)

// These texts go into archives and packages.
var (
	readmes       = []string{"README.md", "README.zh-CN.md"}
	clientReadmes = []string{"clients/python/README.md", "clients/typescript/README.md"}
)

var (
	unreleased = regexp.MustCompile(`<!-- unreleased -->(?s:.*?)<!-- end -->\s?`)
	picture    = regexp.MustCompile(`(src|srcset)="([^":]+)"`)
	link       = regexp.MustCompile(`(!?)(\[[^\]]*\])\(([^):#][^):]*)\)`)
)

func (r *release) texts() string { return filepath.Join(r.work(), "texts") }

// releaseTexts takes out of the clone's texts what is true until there is a release.
func (r *release) releaseTexts(context.Context) error {
	for _, name := range readmes {
		if err := rewrite(filepath.Join(r.clone(), name), filepath.Join(r.clone(), name), released); err != nil {
			return err
		}
	}
	return nil
}

// makeTexts writes the texts for those who have no clone: links lead to the repository.
func (r *release) makeTexts(context.Context) error {
	for _, name := range append(readmes, clientReadmes...) {
		absolute := func(text string) string { return absoluteLinks(name, text, r.version) }
		to := filepath.Join(r.texts(), name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := rewrite(filepath.Join(r.clone(), name), to, absolute); err != nil {
			return err
		}
	}
	return nil
}

func rewrite(from, to string, f func(string) string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, []byte(f(string(text))), 0o644)
}

func released(text string) string { return unreleased.ReplaceAllString(text, "") }

// absoluteLinks has the relative links of a text lead to the files of the release.
func absoluteLinks(name, text, version string) string {
	to := func(kind, file string) string {
		return "https://" + rootPath + kind + version + "/" + path.Join(path.Dir(name), file)
	}
	text = picture.ReplaceAllStringFunc(text, func(attribute string) string {
		m := picture.FindStringSubmatch(attribute)
		return m[1] + `="` + to("/raw/", m[2]) + `"`
	})
	return link.ReplaceAllStringFunc(text, func(l string) string {
		m := link.FindStringSubmatch(l)
		kind := "/blob/"
		if m[1] == "!" {
			kind = "/raw/"
		}
		return m[1] + m[2] + "(" + to(kind, m[3]) + ")"
	})
}
