package redislock

import (
	"hash/maphash"
	"strings"
	"sync/atomic"

	"github.com/fencelock/fencelock/internal/escape"
	"github.com/fencelock/fencelock/redislock/internal/transport"
)

// A lock has three Redis keys, which script/record.lua describes, and perhaps a stream:
//
//	fencelock:{orders/42}    record
//	fencelock:{orders/42}c   claims
//	fencelock:{orders/42}z   order
//	fencelock:{orders/42}h   history
//
// What is in braces is the hash tag: a Cluster puts all in one hash slot. The
// lock's key is escaped there, so that it cannot hold a brace itself.

// keyEscaping writes as %XX what must not stand in a hash tag: braces, which would end
// it, and what makes a key hard to read or to type.
var keyEscaping = escape.NewTable('%', func(c byte) bool {
	switch c {
	case '{', '}', '"', '\\', 0x7f:
		return false
	}
	return c > ' '
})

// recordName returns the first of a lock's Redis keys.
func (b *Backend) recordName(key string) string {
	return b.prefix + "{" + keyEscaping.Escape(key) + "}"
}

// lockKeys are a lock's Redis keys as commands send them.
type lockKeys struct {
	lock  string
	redis [3]any // record, claims, order
}

// keyCache remembers the Redis keys of locks that were used a moment ago: a lock is
// entered, left, and often entered again. Without the cache, 512 keys (cmd/bench -case
// keys) cost the client 15 % more.
type keyCache struct {
	seed maphash.Seed
	keys [4096]atomic.Pointer[lockKeys]
}

// maxCachedKey is how long a key may be to be remembered.
const maxCachedKey = 256

// keys returns a lock's Redis keys.
func (b *Backend) keys(key string) []any {
	cached := &b.keyCache.keys[maphash.String(b.keyCache.seed, key)%uint64(len(b.keyCache.keys))]
	if k := cached.Load(); k != nil && k.lock == key {
		return k.redis[:]
	}
	record := b.recordName(key)
	k := &lockKeys{key, [3]any{record, record + "c", record + "z"}}
	if len(key) <= maxCachedKey {
		cached.Store(k)
	}
	return k.redis[:]
}

// command makes a call of a script that works on one lock.
func (b *Backend) command(s *transport.Script, key string, argv ...any) *transport.Command {
	return transport.NewCommand(s, b.keys(key), argv...)
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
	return keyEscaping.Unescape(tag)
}

// glob returns a pattern for the records of keys that begin with prefix.
func (b *Backend) glob(prefix string) string {
	return escapeGlob(b.prefix+"{"+keyEscaping.Escape(prefix)) + "*}"
}

// escapeGlob makes a pattern that matches s alone.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// hashSlot returns the hash slot that a Cluster keeps a name in.
func hashSlot(name string) uint16 {
	if i := strings.IndexByte(name, '{'); i >= 0 {
		if n := strings.IndexByte(name[i+1:], '}'); n > 0 {
			name = name[i+1 : i+1+n]
		}
	}
	var crc uint16
	for i := range len(name) {
		crc ^= uint16(name[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc & 16383
}
