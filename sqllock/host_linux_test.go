package sqllock

import (
	"strings"
	"testing"
)

func TestThisFileIsOnSomeFileSystem(t *testing.T) {
	if kind := fileSystem(t.TempDir()); kind == "" || strings.ContainsAny(kind, " /") {
		t.Errorf("it is %q", kind)
	}
}
