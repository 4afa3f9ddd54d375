package redislock

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"
)

// A lock has three keys, which script/record.lua describes:
//
//	fencelock:{orders/42}    record
//	fencelock:{orders/42}c   claims
//	fencelock:{orders/42}z   order
//
// What is in braces is the hash tag: Cluster puts all three in one slot. The key
// is encoded there, so that it cannot hold a brace itself.

const hexDigits = "0123456789ABCDEF"

// plain reports whether a byte stands for itself in an encoded key. Others are
// written as %XX: braces, which would end the hash tag, and what makes a key hard
// to read or to type.
func plain(c byte) bool {
	switch c {
	case '{', '}', '%', '"', '\\', 0x7f:
		return false
	}
	return c > ' '
}

// encode turns any bytes into a hash tag. It works byte by byte, so that what a
// key begins with is what its code begins with.
func encode(key string) string {
	n := 0
	for i := range len(key) {
		if !plain(key[i]) {
			n++
		}
	}
	if n == 0 {
		return key
	}
	b := make([]byte, 0, len(key)+2*n)
	for i := range len(key) {
		c := key[i]
		if plain(c) {
			b = append(b, c)
			continue
		}
		b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
	}
	return string(b)
}

// decode is the opposite of encode. It reports false for what encode does not write.
func decode(tag string) (key string, ok bool) {
	if !strings.Contains(tag, "%") {
		return tag, encode(tag) == tag
	}
	b := make([]byte, 0, len(tag))
	for i := 0; i < len(tag); i++ {
		if tag[i] != '%' {
			b = append(b, tag[i])
			continue
		}
		if i+2 >= len(tag) {
			return "", false
		}
		high, low := strings.IndexByte(hexDigits, tag[i+1]), strings.IndexByte(hexDigits, tag[i+2])
		if high < 0 || low < 0 {
			return "", false
		}
		b = append(b, byte(high<<4|low))
		i += 2
	}
	return string(b), encode(string(b)) == tag
}

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
	n := newNames(key, b.prefix+"{"+encode(key)+"}")
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
	return decode(tag)
}

// glob returns a pattern for the records of keys that begin with prefix.
func (b *Backend) glob(prefix string) string {
	return escapeGlob(b.prefix+"{"+encode(prefix)) + "*}"
}

// escapeGlob makes a pattern that matches s alone.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
