package doctor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fencelock/fencelock/driver/health"
	"github.com/fencelock/fencelock/verify/natsserver"
)

func TestNATS(t *testing.T) {
	t.Parallel()
	s, err := natsserver.Start(t.TempDir())
	must(t, err)
	t.Cleanup(s.Stop)
	b := open(t, s.URL()+"/locks").Backend
	finds(t, b, 30*time.Second, "warning nats-sync")
	nc, err := nats.Connect(s.URL())
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must(t, err)
	_, err = js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{
		Bucket: "short", TTL: time.Hour, Storage: jetstream.MemoryStorage,
	})
	must(t, err)
	b = open(t, s.URL()+"/short").Backend
	finds(t, b, 30*time.Second, "warning nats-sync", "warning nats-memory", "error nats-limits")
}

func TestNATSCluster(t *testing.T) {
	t.Parallel()
	all, err := natsserver.Cluster(t.TempDir(), 3)
	var urls []string
	for _, s := range all {
		t.Cleanup(s.Stop)
		urls = append(urls, strings.TrimPrefix(s.URL(), "nats://"))
	}
	must(t, err)
	store := open(t, "nats://"+strings.Join(urls[:2], ",")+"/locks")
	for end := time.Now().Add(time.Minute); store.Ping(t.Context()) != nil; { // until they have elected a leader
		if time.Now().After(end) {
			t.Fatal("no leader was elected")
		}
	}
	finds(t, store.Backend, time.Minute)
	finds(t, store.Backend, 5*time.Second, "warning nats-election")
	all[2].Stop()
	for end := time.Now().Add(time.Minute); ; {
		r, err := store.Backend.(health.Examiner).Examine(t.Context(), time.Minute)
		if err == nil && len(r.Findings) == 1 && r.Findings[0].Code == "nats-replica" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("doctor found %+v, error %v", r.Findings, err)
		}
	}
}
