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
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	b.Run("lock", func(b *testing.B) {
		l, err := p.backend(nc)
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		for b.Loop() {
			t, err := l.Enter(b.Context(), steps.Claim("k"))
			if err != nil {
				b.Fatal(err)
			}
			if err := l.Leave(b.Context(), t, driver.Exit{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("two updates", func(b *testing.B) {
		js, err := jetstream.New(nc)
		if err != nil {
			b.Fatal(err)
		}
		kv, err := js.CreateKeyValue(b.Context(), jetstream.KeyValueConfig{Bucket: "floor"})
		if err != nil {
			b.Fatal(err)
		}
		revision, err := kv.PutString(b.Context(), "k", "first")
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			for range 2 {
				if revision, err = kv.Update(b.Context(), "k", make([]byte, 300), revision); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
