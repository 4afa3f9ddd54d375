package redislock

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/internal/escape"
)

// A lock has three keys, which script/record.lua describes:
//
//	fencelock:{orders/42}    record
//	fencelock:{orders/42}c   claims
//	fencelock:{orders/42}z   order
//
// What is in braces is the hash tag: Cluster puts all three in one slot. The key
// is encoded there, so that it cannot hold a brace itself.

// letters are what stands for itself in the hash tag of a key. Others are written as %XX:
// braces, which would end the tag, and what makes a key hard to read or to type.
var letters = escape.NewTable('%', func(c byte) bool {
	switch c {
	case '{', '}', '"', '\\', 0x7f:
		return false
	}
	return c > ' '
})

// record returns the first of a lock's keys.
func (b *Backend) record(key string) string { return b.names(key).record }

// names are a lock's keys as requests send them.
type names struct {
	key, record string
	args        [3]any
}

func newNames(key, record string) *names {
	return &names{key, record, [3]any{record, record + "c", record + "z"}}
}

// recent are the names of locks that were used a moment ago: a lock is entered and left,
// and often entered again.
type recent [4096]atomic.Pointer[names]

var seed = maphash.MakeSeed()

// longName is how long a key may be to be remembered.
const longName = 256

func (b *Backend) names(key string) *names {
	place := &b.recent[maphash.String(seed, key)%uint64(len(b.recent))]
	if n := place.Load(); n != nil && n.key == key {
		return n
	}
	n := newNames(key, b.prefix+"{"+letters.Escape(key)+"}")
	if len(key) <= longName {
		place.Store(n)
	}
	return n
}

// lasting is how long a record lasts, in ms, as requests send it.
type lasting struct {
	ttl time.Duration
	ms  any
}

// lasts returns how long the record of a claim lasts. Most claims of a program have
// one TTL.
func (b *Backend) lasts(ttl time.Duration) any {
	if l := b.lasting.Load(); l != nil && l.ttl == ttl {
		return l.ms
	}
	l := &lasting{ttl, (ttl + memory).Milliseconds()}
	b.lasting.Store(l)
	return l.ms
}

// keyOf returns the key of a lock from the name of its record, and false for any
// other name.
func (b *Backend) keyOf(record string) (key string, ok bool) {
	tag, ok := strings.CutPrefix(record, b.prefix+"{")
	if !ok {
		return "", false
	}
	if tag, ok = strings.CutSuffix(tag, "}"); !ok {
		return "", false
	}
	return letters.Unescape(tag)
}

// glob returns a pattern for the records of keys that begin with prefix.
func (b *Backend) glob(prefix string) string {
	return escapeGlob(b.prefix+"{"+letters.Escape(prefix)) + "*}"
}

// escapeGlob makes a pattern that matches s alone.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
