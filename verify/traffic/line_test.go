//go:build unix

package traffic

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestLinesThatWaitForTheDiskAreLate: here the disk is a pipe that nobody reads for a while.
func TestLinesThatWaitForTheDiskAreLate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	rec, err := NewRecorder(path, "w1.1")
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error)
	go func() {
		for range 10_000 { // more than a pipe holds
			rec.Write(Line{Op: Call, Key: "a key that is not short"})
		}
		written <- rec.Close()
	}()
	var text bytes.Buffer
	read := make(chan error)
	time.AfterFunc(time.Second, func() {
		_, err := text.ReadFrom(reader)
		read <- err
	})
	for _, end := range []chan error{written, read} {
		if err := <-end; err != nil {
			t.Fatal(err)
		}
	}
	for d := json.NewDecoder(&text); d.More(); {
		var l Line
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		if l.Op == Tick && l.Proc == "w1.1" {
			return
		}
	}
	t.Error("a line took most of a second, and none says so")
}
