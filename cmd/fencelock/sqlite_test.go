//go:build unix

package main

import (
	"os"
	"testing"
)

// TestDeletedDatabaseEndsTheCommand deletes the file of locks under a holder, as a cleaner of
// temporary files does. The lock is lost then: the next process uses another file.
func TestDeletedDatabaseEndsTheCommand(t *testing.T) {
	s := sqliteStage(t)
	holder := s.start("fencelock", "run", "--ttl", "1s", "n", "--", "sh", "-c", "touch began; sleep 600")
	eventually(t, "the command runs", func() bool {
		_, err := os.Stat(s.path("began"))
		return err == nil
	})
	for _, name := range []string{"locks.db", "locks.db-wal", "locks.db-shm"} {
		must(t, os.Remove(s.path(name)))
	}
	holder.wantExit(exitLost)
	holder.wantLine("was lost while the command ran", "deleted or replaced")
	s.must("run", "-n", "n", "--", "true")
}

// TestSymlinkToNoFileIsRefused: SQLite would create the target with the rights of whoever runs
// the command, wherever whoever made the link wants it.
func TestSymlinkToNoFileIsRefused(t *testing.T) {
	s := sqliteStage(t)
	must(t, os.Symlink(s.path("target"), s.path("locks.db")))
	p := s.wants(exitConfig, "run", "n", "--", "true")
	p.wantLine("symlink", "does not exist")
	if _, err := os.Lstat(s.path("target")); err == nil {
		t.Error("the target was created")
	}
}
