package clean

import "testing"

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
		if got := Value(raw); got != want {
			t.Errorf("Value(%q) = %q; want %q", raw, got, want)
		}
	}
}

func TestTextReadsWhatEditorsAndShellsWrite(t *testing.T) {
	for file, want := range map[string]string{
		"pw\n":                           "pw\n",
		"\xef\xbb\xbfpw\r\n":             "pw\r\n",
		"\xff\xfep\x00w\x00\r\x00\n\x00": "pw\r\n",
		"\xfe\xff\x00p\x00w":             "pw",
	} {
		if got := Text([]byte(file)); got != want {
			t.Errorf("Text(%q) = %q; want %q", file, got, want)
		}
	}
}
