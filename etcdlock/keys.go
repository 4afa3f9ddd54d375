package etcdlock

import (
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/escape"
)

// All that belongs to one line has keys of one form:
//
//	prefix key / class name
//
// The name of a claim is that of a slot (see slots), which is used again and again; of what
// keeps an id out, that id.
//
// The key is escaped, so that it has no slash, and no line's keys begin with
// another's. The class is one letter. It puts the claims of a line next to each
// other, and claims of one kind too, so that a transaction can compare all of them.
const (
	classMark   = 'm' // the line's mark; it has no id
	classPermit = 'p' // a claim on a semaphore
	classReader = 'r'
	classWriter = 'w'
	classRest   = 'z' // keeps an id out, or says that its claim lingers
)

// span is the keys from one to before another.
type span struct{ from, to string }

// all is the span as options of a read.
func (s span) all(opts ...clientv3.OpOption) clientv3.Op {
	return clientv3.OpGet(s.from, append(opts, clientv3.WithRange(s.to))...)
}

// none compares that the span is empty.
func (s span) none() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(s.from), "=", 0).WithRange(s.to)
}

// since compares that the span has a key, and none that is older than rev.
func (s span) since(rev int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(s.from), ">", rev-1).WithRange(s.to)
}

// until compares that the span has no key that is younger than rev.
func (s span) until(rev int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(s.from), "<", rev+1).WithRange(s.to)
}

// absent compares that key is not there.
func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

// created compares that key was made by the transaction rev, and not anew.
func created(key string, rev int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", rev)
}

// unchanged compares that key is as it was read, or still absent if kv is nil.
func unchanged(key string, kv *keyValue) clientv3.Cmp {
	if kv == nil {
		return absent(key)
	}
	return clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision)
}

// lineKeys are the names of one line's keys.
type lineKeys string

func (b *Backend) line(key string) lineKeys { return lineKeys(b.prefix + letters.Escape(key) + "/") }

func (l lineKeys) claims() span  { return span{string(l) + "p", string(l) + "x"} }
func (l lineKeys) permits() span { return span{string(l) + "p", string(l) + "q"} }
func (l lineKeys) shared() span  { return span{string(l) + "r", string(l) + "x"} } // readers and writers
func (l lineKeys) writers() span { return span{string(l) + "w", string(l) + "x"} }
func (l lineKeys) whole() span   { return span{string(l), string(l[:len(l)-1]) + "0"} }
func (l lineKeys) mark() string  { return string(l) + string(classMark) }

func (l lineKeys) rest(id string) string { return string(l) + string(classRest) + id }

// classOf is where the claims that are like c stand.
func classOf(c *driver.Claim) rune {
	switch {
	case c.Capacity < driver.RW:
		return classPermit
	case c.Weight < driver.RW:
		return classReader
	}
	return classWriter
}

// split reads the name of a key of a line.
func (b *Backend) split(name string) (key string, class rune, rest string, ok bool) {
	escaped, rest, ok := strings.Cut(strings.TrimPrefix(name, b.prefix), "/")
	if !ok || rest == "" || escaped == "" {
		return "", 0, "", false
	}
	key, ok = letters.Unescape(escaped)
	return key, rune(rest[0]), rest[1:], ok
}

// letters are what stands for itself in a key: printable ASCII without a slash. Every other byte
// becomes a percent sign and two digits.
var letters = escape.NewTable('%', func(c byte) bool { return c > ' ' && c < 0x7f && c != '/' })
