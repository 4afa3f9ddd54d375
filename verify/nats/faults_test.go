package nats_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/internal/worker"
	"github.com/fencelock/fencelock/natslock"
	"github.com/fencelock/fencelock/verify/natsserver"
)

// own starts a server for one test.
func own(t *testing.T) (*natsserver.Server, place) {
	t.Helper()
	s, err := natsserver.Start(t.TempDir())
	steps.Must(t, err)
	t.Cleanup(s.Stop)
	return s, place{s.URL(), "locks", 1}
}

//verify:fault NATS | the server is restarted
func TestClaimsOutliveARestart(t *testing.T) {
	t.Parallel()
	s, p := own(t)
	a, b := p.open(t), p.open(t)
	holder, waiter := steps.PersistEnter(t, a, steps.Claim("k")), steps.PersistEnter(t, b, steps.Claim("k"))
	s.Stop()
	steps.Must(t, s.Start())
	steps.PersistRenew(t, a, holder)
	steps.Leave(t, a, holder)
	steps.Rises(t, holder.Token, steps.Granted(t, b, waiter).Token)
}

// An operator deletes the bucket while a lock is held. The holder hears that its claim is gone; tokens rise.
func TestTokensRiseAcrossALostBucket(t *testing.T) {
	t.Parallel()
	_, p := own(t)
	a, b := p.open(t), p.open(t)
	holder := steps.PersistEnter(t, a, steps.Claim("k"))
	js := p.jetStream(t)
	steps.Must(t, js.DeleteStream(t.Context(), "KV_"+p.Bucket))
	if next := steps.PersistEnter(t, b, steps.Claim("k")); !next.Granted || next.Token <= holder.Token {
		t.Errorf("after %d, the next ticket is %+v", holder.Token, next)
	}
	steps.Gone(t, "Renew", steps.Renew(t, a, holder))
}

// A server shows a bucket that is being made before it takes writes. Here an operator deletes one, and makes it again
// a second after a client has begun to write: the write is taken then, and not refused.
func TestWriteWaitsForABucketThatIsBeingMade(t *testing.T) {
	t.Parallel()
	_, p := own(t)
	b, first := p.pair(t)
	js := p.jetStream(t)
	stream, err := js.Stream(t.Context(), "KV_"+p.Bucket)
	steps.Must(t, err)
	again := stream.CachedInfo().Config
	again.FirstSeq = uint64(time.Now().UnixMicro())
	steps.Must(t, js.DeleteStream(t.Context(), again.Name))
	made := make(chan error, 1)
	time.AfterFunc(time.Second, func() { // real time: the client writes meanwhile, for it has read the line before
		_, err := js.CreateStream(context.Background(), again)
		made <- err
	})
	next, err := b.Enter(t.Context(), steps.Claim("k"))
	if err != nil || !next.Granted || next.Token <= first.Token {
		t.Errorf("after %d, Enter returned %+v, error %v", first.Token, next, err)
	}
	steps.OK(t, <-made)
}

// An operator has made the bucket by `nats kv add`, and deletes the key of a lock by `nats kv del`.
func TestBucketOfAnOperator(t *testing.T) {
	t.Parallel()
	_, p := own(t)
	js := p.jetStream(t)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: p.Bucket})
	steps.Must(t, err)
	b := p.open(t)
	first := steps.PersistEnter(t, b, steps.Claim("a/b"))
	if e, err := kv.Get(t.Context(), "line.a/b"); err != nil || len(e.Value()) == 0 {
		t.Errorf("the key is %v, error %v", e, err)
	}
	steps.OK(t, b.Leave(t.Context(), first, driver.Exit{}))
	steps.PersistEnter(t, b, steps.Claim("a/b"))
	steps.Must(t, kv.Delete(t.Context(), "line.a/b"))
	if next := steps.PersistEnter(t, b, steps.Claim("a/b")); !next.Granted || next.Token <= first.Token {
		t.Errorf("after %d, the next ticket is %+v", first.Token, next)
	}
}

// Nobody serves JetStream. That is said, and is known to have had no effect.
func TestServerWithoutJetStreamRefuses(t *testing.T) {
	t.Parallel()
	s, err := natsserver.Start(t.TempDir(), natsserver.NoJetStream)
	steps.Must(t, err)
	t.Cleanup(s.Stop)
	b := place{s.URL(), "locks", 1}.open(t)
	steps.Is(t, "Enter", steps.ErrOf(b.Enter(steps.Soon(t), steps.Claim("k"))), driver.ErrRefused)
}

// A program closes its connection before its locks, or the connection has given up: asking again is of no use.
func TestClosedConnectionRefusesForGood(t *testing.T) {
	t.Parallel()
	p := bucket(t)
	nc := p.connect(t)
	b := p.view(t, nc)
	nc.Close()
	steps.Is(t, "Enter", steps.ErrOf(b.Enter(steps.Soon(t), steps.Claim("k"))), driver.ErrPermanent)
}

func trial(t *testing.T) worker.Trial[place] {
	t.Parallel()
	p := bucket(t)
	const lease = 10 * time.Second
	b := p.open(t)
	steps.Leave(t, b, steps.Hold(t, b, steps.Claim("first"))) // a new bucket is shown before it takes writes
	return worker.Trial[place]{Store: p, Backend: b, Lease: lease, Late: 9 * lease}
}

func TestProcessesNeverOverlap(t *testing.T) { trial(t).NeverOverlap(t, 4, 50) }

//verify:fault NATS | the holder is killed
func TestKilledHolderIsGoneAfterItsLease(t *testing.T) { trial(t).KilledHolder(t) }

//verify:fault NATS | the first waiter is killed
func TestKilledWaiterDelaysNobodyBeyondItsLease(t *testing.T) { trial(t).KilledWaiter(t) }

//verify:fault Processes | kill -9 while being handed the lock, at any moment
func TestKilledAtAnyMomentNothingStays(t *testing.T) { trial(t).KilledAtAnyMoment(t, 8, nil) }

// A client is connected to a leaf node that has a mirror of the bucket. Reads there are late, and writes reach nobody.
func TestMirrorOfABucketRefuses(t *testing.T) {
	t.Parallel()
	domain := func(name string, change func(*server.Options)) *natsserver.Server {
		s, err := natsserver.Start(t.TempDir(), func(o *server.Options) { o.ServerName, o.JetStreamDomain = name, name }, change)
		steps.Must(t, err)
		t.Cleanup(s.Stop)
		return s
	}
	ports, err := testserver.Ports(1)
	steps.Must(t, err)
	hub := domain("hub", func(o *server.Options) { o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", ports[0] })
	leaf := domain("leaf", func(o *server.Options) {
		remote := &url.URL{Scheme: "nats", Host: fmt.Sprint("127.0.0.1:", ports[0])}
		o.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{remote}}}
	})
	origin, mirror := place{hub.URL(), "locks", 1}, place{leaf.URL(), "locks", 1}
	holder := steps.PersistEnter(t, origin.open(t), steps.Claim("k"))
	testserver.Eventually(t, time.Minute, "a mirror of the bucket", func() bool {
		_, err := mirror.jetStream(t).CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{
			Name: "KV_locks", Mirror: &jetstream.StreamSource{Name: "KV_locks", Domain: "hub"}, MaxMsgsPerSubject: 1,
		})
		return err == nil
	})
	at := mirror.open(t)
	if _, err := at.Enter(t.Context(), steps.Claim("k")); !errors.Is(err, driver.ErrPermanent) ||
		!strings.Contains(err.Error(), "is a mirror") {
		t.Errorf("beside %v, Enter at the mirror returned %v", holder.Token, err)
	}
	steps.Is(t, "Ping of the mirror", at.(*natslock.Backend).Ping(t.Context()), driver.ErrPermanent)
}
