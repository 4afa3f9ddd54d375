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

// find returns what is known of the container of key: the zero container if that is nothing.
func (cs *containers) find(key string) container {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.byKey[key]
}

// seen notes that the line of key has a container, if there is room for another one. It is
// remembered how our last claim left it.
func (cs *containers) seen(key string, left *zk.Stat) {
	now := container{time.Now(), anyVersion}
	if left != nil && left.NumChildren == 0 {
		now.version = left.Version
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	_, known := cs.byKey[key]
	if !known && len(cs.byKey) >= maxContainers {
		maps.DeleteFunc(cs.byKey, func(_ string, c container) bool { return time.Since(c.seen) > containerAge })
	}
	if known || len(cs.byKey) < maxContainers {
		cs.byKey[key] = now
	}
}

// forget drops a container that is gone, or has changed.
func (cs *containers) forget(key string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.byKey, key)
}
