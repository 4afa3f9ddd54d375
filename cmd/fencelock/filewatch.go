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
	now, err := os.Stat(path)
	if err != nil {
		now = nil
	}
	changed = !sameState(w.named, now)
	isNew := now != nil && (w.named == nil || !os.SameFile(w.named, now))
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
	if isNew {
		w.hold(path)
	}
	return changed
}

// hold opens the file that has the name now, unless it is held already.
func (w *fileWatch) hold(path string) {
	f := holdFile(path)
	if f == nil {
		return
	}
	info, err := f.Stat()
	if err != nil || slices.ContainsFunc(w.held, func(h heldFile) bool { return os.SameFile(h.last, info) }) {
		f.Close()
		return
	}
	w.held = append(w.held, heldFile{f, info, time.Now()})
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
