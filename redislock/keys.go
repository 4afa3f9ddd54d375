package redislock

import (
	"strings"

	"github.com/fencelock/fencelock/internal/escape"
)

// A lock is a hash, and while claims wait also a hash and a sorted set:
//
//	H  fencelock:{orders/42}      HASH    format   of this layout: 2
//	                                      last     the largest token drawn
//	                                      kept     the keys live at least until then
//	                                      tombs    no tombstone lasts longer
//	                                      mark     and by, the ID of the claim that left it
//	                                      broke    the token and the reason of the last Break
//	                              and while somebody holds the lock:
//	                                      held     the sum of the weights
//	                                      size     the capacity of every claim in line
//	                                      soonest  no claim in line ends before
//	                                      waits    how many claims wait, if any do
//	                                      c:ID     a claim that holds
//	                                      l:ID     a claim that has left, or was broken, and lingers
//	                                      n:ID     why c:ID ends, if an operator has given notice
//	                                      m:ID     the mark when c:ID was granted, if there was one
//	V  fencelock:{orders/42}v     HASH    c:ID     a claim that waits, or l:ID
//	W  fencelock:{orders/42}w     ZSET    the fields of V by token: the order
//	   fencelock:{orders/42}x:ID  STRING  with a PX: why ID may not come back: l it has left,
//	                                      a another process has adopted it, b and the reason it was broken,
//	                                      n and the reason it was under notice, and has left or run out
//	   fencelock:{orders/42}h     STREAM  the history, if there is one
//
// A claim is: ends token since span weight channel lock-delay #owner owner #trace trace note. Times are µs
// since 1970, a lock-delay is µs, and #owner is the number of bytes of the owner.
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

// hashName returns the first of a lock's Redis keys.
func (b *Backend) hashName(key string) string {
	return b.prefix + "{" + keyEscaping.Escape(key) + "}"
}

// request is one run of a script for one lock.
func (b *Backend) request(s *script, key string, args ...any) *request {
	return &request{script: s, key: b.hashName(key), args: args}
}

// keyOf returns the key of a lock from the name of its hash, and false for any
// other name.
func (b *Backend) keyOf(name string) (key string, ok bool) {
	tag, ok := strings.CutPrefix(name, b.prefix+"{")
	if !ok {
		return "", false
	}
	if tag, ok = strings.CutSuffix(tag, "}"); !ok {
		return "", false
	}
	return keyEscaping.Unescape(tag)
}

// glob returns a pattern for the hashes of keys that begin with prefix.
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
