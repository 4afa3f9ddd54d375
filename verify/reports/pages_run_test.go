//go:build verify

package reports

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/testserver"
)

// A user pastes the shell blocks of README and install, in either language, one after the other.

// elsewhere are the beginnings of blocks that need a release, a container engine or a quarter of an
// hour, and who runs them.
var elsewhere = map[string]string{
	"make test":    "CI",
	"go install":   "make release-check",
	"go get":       "make release-check",
	"sha256sum":    "make release-check",
	"sudo dpkg":    "make release-check",
	"docker build": "the workflow full",
}

// prelude makes of a clone from GitHub one of this repository, and of the system's folders those
// of the test.
const prelude = `set -euo pipefail
git() {
	if [ "$1" = clone ]; then command git clone --quiet "$SOURCE" fencelock; else command git "$@"; fi
}
sudo() { "$@"; }
`

var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```")

// pasted returns the blocks of a page that a user without a release can run.
func pasted(t *testing.T, page string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", page))
	must(t, err)
next:
	for _, m := range shellBlock.FindAllStringSubmatch(string(text), -1) {
		for begins := range elsewhere {
			if strings.HasPrefix(m[1], begins) {
				continue next
			}
		}
		blocks = append(blocks, m[1])
	}
	return blocks
}

// paste runs blocks in one shell, in a folder of its own.
func paste(t *testing.T, url string, blocks []string) string {
	t.Helper()
	source, err := filepath.Abs(filepath.Join("..", ".."))
	must(t, err)
	dir := t.TempDir()
	system := filepath.Join(dir, "system")
	for _, folder := range []string{"bin", "completions"} {
		must(t, os.MkdirAll(filepath.Join(system, folder), 0o755))
	}
	script := prelude
	for _, b := range blocks {
		script += b
		if strings.Contains(b, "go mod edit") { // it is for a module of the user's own
			script = strings.Replace(script, b, fmt.Sprintf("(mkdir ../own && cd ../own && go mod init example.com/own\n%s)\n", b), 1)
		}
	}
	script = strings.NewReplacer("/usr/local/bin/", filepath.Join(system, "bin")+"/",
		"/etc/bash_completion.d/", filepath.Join(system, "completions")+"/").Replace(script)
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = dir
	// What make build compiles serves every page: -trimpath leaves the folder of a clone out.
	cmd.Env = append(os.Environ(), "SOURCE="+source, "FENCELOCK_URL="+url, "GOFLAGS=-trimpath -tags=grpcnotrace",
		"PATH="+filepath.Join(system, "bin")+":"+os.Getenv("PATH"), "XDG_STATE_HOME="+filepath.Join(dir, "state"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\nIt was:\n%s", err, out, script)
	}
	return string(out)
}

func TestBlocksOfTheREADMERun(t *testing.T) {
	redis := testserver.Redis(t).URL()
	for page, url := range map[string]string{"README.md": "", "README.zh-CN.md": redis} { // the local file, and Redis
		blocks := pasted(t, page)
		if out := paste(t, url, blocks); len(blocks) == 0 || !strings.Contains(out, "only one of us at a time") {
			t.Errorf("%s: %d blocks print %q", page, len(blocks), out)
		}
	}
}

func TestBlocksOfTheInstallPageRun(t *testing.T) {
	for _, page := range []string{"docs/install.md", "docs/install.zh-CN.md"} {
		blocks := pasted(t, page)
		if out := paste(t, "", blocks); len(blocks) < 5 || !strings.Contains(out, "fencelock ") {
			t.Errorf("%s: %d blocks print %q", page, len(blocks), out)
		}
	}
}
