package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

func TestTextsOfAReleaseLeadToTheRepository(t *testing.T) {
	const text = "a<!-- unreleased -->not yet: [x](y)<!-- end --> [b](docs/b.md#c), [d](https://e), [f](#g), ![p](docs/p.png), " +
		`<source srcset="docs/d.svg"><img src="docs/l.svg">`
	const want = "a[b](https://github.com/fencelock/fencelock/blob/v1.2.3/docs/b.md#c), [d](https://e), [f](#g), " +
		"![p](https://github.com/fencelock/fencelock/raw/v1.2.3/docs/p.png), " +
		`<source srcset="https://github.com/fencelock/fencelock/raw/v1.2.3/docs/d.svg">` +
		`<img src="https://github.com/fencelock/fencelock/raw/v1.2.3/docs/l.svg">`
	if got := absoluteLinks("README.md", released(text), "v1.2.3"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The READMEs say in the tree that nothing is released yet, and in a release that it is.
func TestTheREADMEsAreReleased(t *testing.T) {
	for _, name := range readmes {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		steps.Must(t, err)
		after := released(string(text))
		for _, word := range []string{"Unreleased", "尚未发布", "<!--"} {
			if strings.Contains(after, word) {
				t.Errorf("%s of a release says %q", name, word)
			}
		}
	}
}
