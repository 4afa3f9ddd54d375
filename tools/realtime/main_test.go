package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

const source = `package p

func TestSleeps(t *testing.T) {
	time.Sleep(time.Second)
	<-time.After(time.Second)
	select {
	case <-time.After(time.Second):
	}
	time.Sleep(time.Second) // real time: for the eye
	if took > 250*time.Millisecond || took > time.Minute {
	}
	tookAtMost(t, start, 800*time.Millisecond)
}

func TestInABubble(t *testing.T) { bubble(t, func() { time.Sleep(time.Hour); passes() }) }

func bubble(t *testing.T, f func()) { synctest.Test(t, func(*testing.T) { f() }) }

func passes() { time.Sleep(time.Hour) }
`

func TestWhatIsReported(t *testing.T) {
	dir := t.TempDir()
	steps.Must(t, os.WriteFile(filepath.Join(dir, "a_test.go"), []byte(source), 0o600))
	found, err := check(dir)
	steps.Must(t, err)
	var lines []string
	for _, f := range found {
		lines = append(lines, strings.Split(f, ":")[1])
	}
	if want := []string{"4", "5", "10", "12"}; !slices.Equal(lines, want) {
		t.Errorf("lines %v are reported; want %v:\n%s", lines, want, strings.Join(found, "\n"))
	}
}
