package main

import (
	"os"
	"slices"
	"time"
)

// fileWatch sees whether a file changes. A command goes on writing to the file that it has
// opened when that is moved or deleted, as by logrotate, so a file is watched beyond its
// name, until it has not changed for as long as a stall lasts.
type fileWatch struct {
	named os.FileInfo // what has the name now; nil: nothing
	held  []heldFile
}

type heldFile struct {
	f    *os.File
	last os.FileInfo
	at   time.Time // when it was seen to change
}

// look reports whether something has changed since the last look.
func (w *fileWatch) look(path string, stall time.Duration) (changed bool) {
	f, now := openNamed(path)
	changed = !sameState(w.named, now)
	w.named = now
	for i := range w.held {
		h := &w.held[i]
		if info, err := h.f.Stat(); err == nil && !sameState(h.last, info) {
			h.last, h.at = info, time.Now()
			changed = true
		}
	}
	w.held = slices.DeleteFunc(w.held, func(h heldFile) bool {
		over := time.Since(h.at) > stall && (now == nil || !os.SameFile(h.last, now))
		if over {
			h.f.Close()
		}
		return over
	})
	w.hold(f, now)
	return changed
}

// openNamed returns the file that has the name now, and its state: one file, also when
// another one gets the name meanwhile. The file is nil where holdFile cannot open it.
func openNamed(path string) (*os.File, os.FileInfo) {
	f := holdFile(path)
	if f == nil {
		info, err := os.Stat(path)
		if err != nil {
			return nil, nil
		}
		return nil, info
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil
	}
	return f, info
}

// hold keeps f open, unless it is nil or held already.
func (w *fileWatch) hold(f *os.File, info os.FileInfo) {
	switch {
	case f == nil:
	case slices.ContainsFunc(w.held, func(h heldFile) bool { return os.SameFile(h.last, info) }):
		f.Close()
	default:
		w.held = append(w.held, heldFile{f, info, time.Now()})
	}
}

func (w *fileWatch) close() {
	for _, h := range w.held {
		h.f.Close()
	}
}

// sameState reports whether a file is the same and has not changed.
func sameState(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
