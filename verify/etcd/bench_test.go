package etcd_test

import (
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
)

// BenchmarkFreeLock is the price of a lock that nobody else wants, Enter and Leave,
// on a server that writes to its disk before it answers and on one that does not.
func BenchmarkFreeLock(b *testing.B) {
	for name, fsync := range map[string]string{"fsync": "--unsafe-no-fsync=false", "nofsync": "--unsafe-no-fsync"} {
		b.Run(name, func(b *testing.B) {
			s := testserver.Etcd(b, testserver.Config(fsync))
			locks, c := backend(b, client(b, s), ""), claim("k")
			b.ReportAllocs()
			for b.Loop() {
				leave(b, locks, hold(b, locks, c))
			}
		})
	}
}

// BenchmarkHandOver passes a lock between two clients.
func BenchmarkHandOver(b *testing.B) {
	s := testserver.Etcd(b)
	one, other := backend(b, client(b, s), ""), backend(b, client(b, s), "")
	holder := hold(b, one, claim("k"))
	for b.Loop() {
		next := wait(b, other, claim("k"))
		done := make(chan driver.Ticket)
		go func() { done <- granted(b, other, next) }()
		leave(b, one, holder)
		holder, one, other = <-done, other, one
	}
	leave(b, one, holder)
}
