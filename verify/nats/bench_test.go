package nats_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
)

// A free lock is taken and left, and for comparison a value of a bucket is updated twice.
func BenchmarkFreeLock(b *testing.B) {
	p := bucket(b)
	nc, err := nats.Connect(p.URL)
	steps.Must(b, err)
	defer nc.Close()
	b.Run("lock", func(b *testing.B) {
		l, err := p.backend(nc)
		steps.Must(b, err)
		defer l.Close()
		for b.Loop() {
			t, err := l.Enter(b.Context(), steps.Claim("k"))
			steps.Must(b, err)
			steps.Must(b, l.Leave(b.Context(), t, driver.Exit{}))
		}
	})
	b.Run("two updates", func(b *testing.B) {
		js, err := jetstream.New(nc)
		steps.Must(b, err)
		kv, err := js.CreateKeyValue(b.Context(), jetstream.KeyValueConfig{Bucket: "floor"})
		steps.Must(b, err)
		revision, err := kv.PutString(b.Context(), "k", "first")
		steps.Must(b, err)
		for b.Loop() {
			for range 2 {
				if revision, err = kv.Update(b.Context(), "k", make([]byte, 300), revision); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
