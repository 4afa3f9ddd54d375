package zklock

import (
	"maps"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	// maxContainers bounds how many empty ones this Backend leaves to the server each
	// minute, which clears away ten thousand by default.
	maxContainers = 1024
	// containerAge is how often the server looks for empty containers by default.
	containerAge = time.Minute
	// anyVersion is the version of a container whose changes do not matter.
	anyVersion = -1
)

// containers remembers which lines have a container, so that a lock that was used a short
// while ago is taken with one request (benchmark "ZooKeeper: free lock").
type containers struct {
	mu    sync.Mutex
	byKey map[string]container
}

// container is what is known of a line's container.
type container struct {
	seen    time.Time
	version int32 // when our claim left it empty, if nobody here has entered since
}

// enter says whether the line of key had a container a short while ago, and its version if
// it was left empty, or anyVersion. Whoever asks is about to enter.
func (cs *containers) enter(key string) (version int32, known bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c, ok := cs.byKey[key]
	if !ok || time.Since(c.seen) > containerAge {
		return anyVersion, false
	}
	cs.byKey[key] = container{c.seen, anyVersion}
	return c.version, true
}

// seen notes that the line of key has a container, if there is room for another one. It is
// remembered how our last claim left it.
func (cs *containers) seen(key string, left *zk.Stat) {
	version := int32(anyVersion)
	if left != nil && left.NumChildren == 0 {
		version = left.Version
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if _, known := cs.byKey[key]; !known && len(cs.byKey) >= maxContainers {
		maps.DeleteFunc(cs.byKey, func(_ string, c container) bool { return time.Since(c.seen) > containerAge })
		if len(cs.byKey) >= maxContainers {
			return
		}
	}
	if cs.byKey == nil {
		cs.byKey = make(map[string]container)
	}
	cs.byKey[key] = container{time.Now(), version}
}

// gone notes that the line of key has no container.
func (cs *containers) gone(key string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.byKey, key)
}

// keeps reports whether the container of key stays when the last claim leaves.
func (cs *containers) keeps(key string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	_, known := cs.byKey[key]
	return known
}
