package sqlite_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestFilesMayHaveAnyName(t *testing.T) {
	names := []string{"locks.db", "a b.db", "ünï#1%20.db", "x&y=z;.db", "日本.db"}
	if runtime.GOOS != "windows" {
		names = append(names, "what?.db", `"quoted'.db`, "new\nline.db", `back\slash`)
	}
	for _, name := range names {
		path := filepath.Join(t.TempDir(), name)
		db := openFile(t, path)
		b := backend(t, db)
		leave(t, b, hold(t, b, claim("k")))
		empty(t, b)
		if _, err := os.Stat(path); err != nil {
			t.Errorf("the locks are not in the file %q: %v", name, err)
		}
		var mode string
		if err := db.QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
			t.Errorf("the journal mode of %q is %q, %v; want wal", name, mode, err)
		}
	}
}
