package etcdlock_test

import (
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// BenchmarkFreeLock is the price of a lock that nobody else wants, Enter and Leave,
// on a server that writes to its disk before it answers and on one that does not.
func BenchmarkFreeLock(b *testing.B) {
	for name, fsync := range map[string]string{"fsync": "--unsafe-no-fsync=false", "nofsync": "--unsafe-no-fsync"} {
		b.Run(name, func(b *testing.B) {
			s := testserver.Etcd(b, testserver.Config(fsync))
			locks, c := backend(b, client(b, s), ""), steps.Claim("k")
			b.ReportAllocs()
			for b.Loop() {
				steps.Leave(b, locks, steps.Hold(b, locks, c))
			}
		})
	}
}
