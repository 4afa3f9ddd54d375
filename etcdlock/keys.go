package etcdlock

import (
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/escape"
)

// All keys of one line have this form:
//
//	prefix key / class name
//
// The key is escaped, so it has no slash, and no line's keys begin with another's. The
// class is one letter. Claims of one class are neighbours, and so are all claims, so
// that a transaction can compare all of them. The name of a claim comes from the
// keyPool. The name of a tombstone is the claim ID.
const (
	classMark      = 'm' // the line's mark; it has no name
	classPermit    = 'p' // a claim on a semaphore
	classReader    = 'r'
	classWriter    = 'w'
	classEpoch     = 'y' // what the line draws its tokens by, once it has followed another store; it has no name
	classTombstone = 'z'
)

// line is what all keys of one line begin with.
type line string

func (b *Backend) line(key string) line { return line(b.prefix + plain.Escape(key) + "/") }

func (l line) all() keyRange { return keyRange{string(l), string(l[:len(l)-1]) + "0"} }

// unmarked are all keys but the mark.
func (l line) unmarked() keyRange {
	return keyRange{string(l) + "p", string(l[:len(l)-1]) + "0"}
}
func (l line) claims() keyRange  { return keyRange{string(l) + "p", string(l) + "x"} }
func (l line) permits() keyRange { return keyRange{string(l) + "p", string(l) + "q"} }
func (l line) writers() keyRange { return keyRange{string(l) + "w", string(l) + "x"} }

func (l line) mark() string               { return string(l) + string(classMark) }
func (l line) epoch() string              { return string(l) + string(classEpoch) }
func (l line) tombstone(id string) string { return string(l) + string(classTombstone) + id }

// prefix is what the names of claims like c begin with.
func (l line) prefix(c *driver.Claim) string { return string(l) + string(classOf(c)) }

// class is the class of a key of the line, or 0.
func (l line) class(kv *keyValue) rune {
	if len(kv.Key) <= len(l) {
		return 0
	}
	return rune(kv.Key[len(l)])
}

// blockers are the claims that keep c waiting while they are older.
func (l line) blockers(c *driver.Claim) keyRange {
	if classOf(c) == classReader {
		return l.writers()
	}
	return l.claims()
}

// otherNames are the names that the key of c would have if c were of another class: another
// Backend may have entered a claim of the same ID.
func (l line) otherNames(c *driver.Claim) (names []string) {
	for _, class := range []rune{classPermit, classReader, classWriter} {
		if c.Named && class != classOf(c) {
			names = append(names, string(l)+string(class)+c.ID)
		}
	}
	return names
}

// classOf is the class of the key of c.
func classOf(c *driver.Claim) rune {
	switch {
	case c.Capacity < driver.RW:
		return classPermit
	case c.Weight < driver.RW:
		return classReader
	}
	return classWriter
}

// parseKey returns the lock that a key of etcd belongs to. It reports false for a key that
// this package has not written.
func (b *Backend) parseKey(name string) (key string, ok bool) {
	escaped, rest, ok := strings.Cut(strings.TrimPrefix(name, b.prefix), "/")
	if !ok || rest == "" || escaped == "" {
		return "", false
	}
	return plain.Unescape(escaped)
}

// plain are the bytes that stand for themselves in a key: printable ASCII without a
// slash. Every other byte becomes a percent sign and two digits.
var plain = escape.NewTable('%', func(c byte) bool { return c > ' ' && c < 0x7f && c != '/' })

// keyRange is the keys from one to before another.
type keyRange struct{ from, end string }

// read reads all keys of the range.
func (r keyRange) read(opts ...clientv3.OpOption) clientv3.Op {
	return clientv3.OpGet(r.from, append(opts, clientv3.WithRange(r.end))...)
}

// first reads the oldest key of the range, and counts all of them.
func (r keyRange) first() clientv3.Op { return r.read(clientv3.WithFirstCreate()...) }

// empty compares that the range has no key.
func (r keyRange) empty() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(r.from), "=", 0).WithRange(r.end)
}

// noneAfter compares that the range has no key younger than rev.
func (r keyRange) noneAfter(rev int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(r.from), "<", rev+1).WithRange(r.end)
}

// absent compares that key is not there.
func absent(key string) clientv3.Cmp { return createdAt(key, 0) }

// createdAt compares that the transaction rev made key.
func createdAt(key string, rev int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", rev)
}

// unchanged compares that key is as it was read, or still absent if kv is nil.
func unchanged(key string, kv *keyValue) clientv3.Cmp {
	if kv == nil {
		return absent(key)
	}
	return clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision)
}
