package storeurl

import (
	"regexp"
	"strings"
	"unicode"
)

var (
	assignment = regexp.MustCompile(`^(export\s+|set\s+)?[A-Z][A-Z0-9_]*=`)
	variable   = regexp.MustCompile(`^(\$\{?[A-Za-z_]\w*\}?|%\w+%)$`)
	quotes     = "\"'`\u201c\u201d\u2018\u2019\u201e\u00ab\u00bb"
)

// odd says what in a URL cannot be meant, or "". A stray quote makes another file or another database of
// the name, and with it locks that do not exclude anyone.
func odd(raw string) string {
	invisible := func(r rune) bool {
		return unicode.Is(unicode.Cf, r) || unicode.IsControl(r) || r == unicode.ReplacementChar
	}
	switch {
	case strings.ContainsAny(raw, "\r\n"):
		return "has more than one line"
	case assignment.MatchString(raw):
		return "begins with the name of a variable; write only what follows the ="
	case variable.MatchString(raw):
		return "is the name of a variable, which was not replaced by its value"
	case strings.Trim(raw, quotes) != raw:
		return "begins or ends with a quote; leave it out, or write %22 for \" and %27 for '"
	case strings.ContainsFunc(raw, invisible):
		return "has an invisible character in it; type it anew"
	}
	return ""
}
