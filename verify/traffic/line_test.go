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

	"github.com/fencelock/fencelock/drivertest/steps"
)

// TestLinesThatWaitForTheDiskAreLate: here the disk is a pipe that nobody reads for a while.
func TestLinesThatWaitForTheDiskAreLate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe")
	steps.Must(t, syscall.Mkfifo(path, 0o600))
	reader, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	steps.Must(t, err)
	defer reader.Close()
	rec, err := NewRecorder(path, "w1.1")
	steps.Must(t, err)
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
		steps.Must(t, <-end)
	}
	for d := json.NewDecoder(&text); d.More(); {
		var l Line
		steps.Must(t, d.Decode(&l))
		if l.Op == Tick && l.Proc == "w1.1" {
			return
		}
	}
	t.Error("a line took most of a second, and none says so")
}
