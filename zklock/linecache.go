package zklock

import (
	"maps"
	"sync"
	"time"
)

const (
	// maxLines bounds how many lines are remembered, and with that how many empty
	// containers this Backend leaves to the server each minute, which clears away ten
	// thousand by default.
	maxLines = 1024
	// lineAge is how often the server looks for empty containers by default.
	lineAge = time.Minute
	// anyVersion is the version of a line whose changes do not matter.
	anyVersion = -1
)

// lineCache remembers which lines have a container, so that a lock that was used a short
// while ago is taken with one request.
type lineCache struct {
	mu     sync.Mutex
	byKey  map[string]container
	pruned time.Time // when old ones were last dropped
}

// container is what is known of a line's container.
type container struct {
	seen    time.Time
	empty   bool  // our claim was the last one, and nobody here has entered since
	version int32 // when that claim left
}

// resume says whether the line of key was there a short while ago, and its version if it
// was left empty, or anyVersion. Whoever asks is about to enter.
func (l *lineCache) resume(key string) (known bool, version int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.byKey[key]
	if !ok || time.Since(c.seen) > lineAge {
		return false, anyVersion
	}
	if !c.empty {
		return true, anyVersion
	}
	l.byKey[key] = container{seen: c.seen}
	return true, c.version
}

// seen notes that the line of key has a container.
func (l *lineCache) seen(key string) { l.put(key, container{seen: time.Now()}) }

// empty notes that the last claim has left the line of key, at that version.
func (l *lineCache) empty(key string, version int32) {
	l.put(key, container{time.Now(), true, version})
}

func (l *lineCache) put(key string, c container) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.room(key) {
		l.byKey[key] = c
	}
}

// gone notes that the line of key has no container.
func (l *lineCache) gone(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byKey, key)
}

// keeps reports whether the container of key stays when the last claim leaves.
func (l *lineCache) keeps(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.room(key)
}

// room reports whether the line of key may be remembered. The caller holds l.mu.
func (l *lineCache) room(key string) bool {
	if l.byKey == nil {
		l.byKey = make(map[string]container)
	}
	if _, ok := l.byKey[key]; ok || len(l.byKey) < maxLines {
		return true
	}
	if time.Since(l.pruned) > time.Second {
		l.pruned = time.Now()
		maps.DeleteFunc(l.byKey, func(_ string, c container) bool { return time.Since(c.seen) > lineAge })
	}
	return len(l.byKey) < maxLines
}
