package etcd_test

import (
	"sync"
	"sync/atomic"
	"testing"

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
		done := await(b, other, next)
		leave(b, one, holder)
		holder, one, other = <-done, other, one
	}
	leave(b, one, holder)
}

// BenchmarkContended passes a lock around between four processes' clients.
func BenchmarkContended(b *testing.B) {
	s := testserver.Etcd(b)
	var left atomic.Int64
	left.Store(int64(b.N))
	var group sync.WaitGroup
	b.ResetTimer()
	for range 4 {
		locks := backend(b, client(b, s), "")
		group.Go(func() {
			for left.Add(-1) >= 0 {
				leave(b, locks, granted(b, locks, enter(b, locks, claim("k"))))
			}
		})
	}
	group.Wait()
}
