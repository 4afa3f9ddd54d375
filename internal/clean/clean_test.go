package clean

import (
	"fmt"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

func TestCleanTakesOffWhatIsNotPartOfAValue(t *testing.T) {
	for raw, want := range map[string]string{
		"":                      "",
		"redis://h/0":           "redis://h/0",
		" redis://h/0\t":        "redis://h/0",
		"redis://h/0\r\n":       "redis://h/0",
		"\"redis://h/0\"\r\n":   "redis://h/0",
		"'redis://h/0'":         "redis://h/0",
		"\ufeffredis://h/0\n":   "redis://h/0",
		"\ufeff\"redis://h/0\"": "redis://h/0",
		"' s3cret '":            " s3cret ",
		"\"'s3cret'\"":          "'s3cret'",
		"\"s3cret":              "\"s3cret",
		"it's":                  "it's",
		"\"":                    "\"",
		" \n":                   "",
		"a b":                   "a b",
	} {
		steps.Same(t, fmt.Sprintf("%q", raw), Value(raw), want)
	}
}

func TestTextReadsWhatEditorsAndShellsWrite(t *testing.T) {
	for file, want := range map[string]string{
		"pw\n":                           "pw\n",
		"\xef\xbb\xbfpw\r\n":             "pw\r\n",
		"\xff\xfep\x00w\x00\r\x00\n\x00": "pw\r\n",
		"\xfe\xff\x00p\x00w":             "pw",
	} {
		steps.Same(t, fmt.Sprintf("%q", file), Text([]byte(file)), want)
	}
}
