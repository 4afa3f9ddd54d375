package nats_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/natslock"
	"github.com/fencelock/fencelock/swaplock"
)

// has returns the names in the bucket that match filter.
func (p place) has(t *testing.T, js jetstream.JetStream, filter string) (names []string) {
	t.Helper()
	s, err := js.Stream(t.Context(), "KV_"+p.Bucket)
	steps.Must(t, err)
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter("$KV."+p.Bucket+"."+filter))
	steps.Must(t, err)
	for subject := range info.State.Subjects {
		names = append(names, strings.TrimPrefix(subject, "$KV."+p.Bucket+"."))
	}
	slices.Sort(names)
	return names
}

// A job takes a lock, renews it once or twice, and leaves it, by the line as it was before the first renewal. Another
// client waits for some of them, and one is ended by an operator.
func TestLockThatWasRenewedLeavesNoLease(t *testing.T) {
	t.Parallel()
	p := bucket(t)
	js := p.jetStream(t)
	a, b := p.open(t), p.open(t)
	for i := range 20 {
		holder := steps.Enter(t, a, steps.Claim(fmt.Sprint("k", i)))
		steps.Must(t, steps.Renew(t, a, holder))
		switch i % 4 {
		case 0:
			steps.Must(t, steps.Renew(t, a, holder))
		case 1:
			waiter := steps.Enter(t, b, steps.Claim(holder.Key))
			steps.Must(t, steps.Renew(t, a, holder))
			defer func() { steps.OK(t, b.Leave(t.Context(), waiter, driver.Exit{})) }()
		case 2:
			steps.Must(t, b.Break(t.Context(), holder.Key, holder.Token, driver.Break{Reason: "out"}))
			continue
		}
		steps.Must(t, a.Leave(t.Context(), holder, driver.Exit{}))
	}
	testserver.Eventually(t, time.Minute, "leases of nobody are removed", func() bool {
		return len(p.has(t, js, "lease.>")) == 0
	})
}

// Who leaves a lock that was not renewed has no lease to remove.
func TestPairSendsTwoRequests(t *testing.T) { bucket(t).pair(t) }

// pair takes and leaves a lock until that sends two requests, for a late answer costs a read. It returns the backend,
// which knows the line of the lock by then, and the last ticket.
func (p place) pair(t *testing.T) (b driver.Backend, last driver.Ticket) {
	t.Helper()
	nc := p.connect(t)
	b = p.view(t, nc)
	testserver.Eventually(t, time.Minute, "a pair that sends two requests", func() bool {
		before := nc.Stats().OutMsgs
		last = steps.PersistEnter(t, b, steps.Claim("k"))
		steps.Leave(t, b, last)
		return nc.Stats().OutMsgs-before == 2
	})
	return b, last
}

// heldUp publishes no lease until it may.
type heldUp struct {
	jetstream.JetStream
	begins, may chan struct{}
}

func (h heldUp) Publish(
	ctx context.Context, subject string, data []byte, o ...jetstream.PublishOpt,
) (*jetstream.PubAck, error) {
	if strings.Contains(subject, ".lease.") {
		h.begins <- struct{}{}
		<-h.may
	}
	return h.JetStream.Publish(ctx, subject, data, o...)
}

// The first renewal of a lease is under way while the lease ends. A waiter takes the lock, and what says that the lease
// has ended is removed with it.
//
//verify:fault NATS | a first renewal lands after another client has taken the lock
func TestFirstRenewalIsUnderWayWhileTheLockIsTaken(t *testing.T) {
	t.Parallel()
	p := bucket(t)
	js := heldUp{p.jetStream(t), make(chan struct{}, 2), make(chan struct{})}
	a := natslock.New(js, &natslock.Options{Bucket: p.Bucket})
	defer a.Close()
	b := p.open(t)
	holder := steps.Enter(t, a, steps.TTL(steps.Claim("k"), 3*time.Second))
	renewed := make(chan error, 1)
	go func() { renewed <- a.Renew(context.Background(), []driver.Ticket{holder})[0] }()
	<-js.begins
	waiter := steps.Granted(t, b, steps.Enter(t, b, steps.Claim("k")))
	testserver.Eventually(t, time.Minute, "the end of the lease is removed", func() bool {
		return len(p.has(t, js, "lease.>")) == 0
	})
	close(js.may)
	if <-renewed == nil { // or it is late for its own time-out
		t.Error("the renewal that was under way has renewed a lease that has ended")
	}
	steps.Gone(t, "the next renewal", steps.Renew(t, a, holder))
	steps.OK(t, steps.Renew(t, b, waiter))
}

// storeOf returns the store of a backend: a Client calls Forget once an hour, and for what is a day old.
func storeOf(b driver.Backend) swaplock.Store {
	field := reflect.ValueOf(b.(*natslock.Backend).Backend).Elem().FieldByName("store")
	return *(*swaplock.Store)(unsafe.Pointer(field.UnsafeAddr()))
}

// A program locks each order once. What it leaves behind is forgotten as a whole, however much it is, and nothing else.
func TestAllThatIsIdleIsForgotten(t *testing.T) {
	t.Parallel()
	p := bucket(t)
	js, b := p.jetStream(t), p.open(t)
	for i := range 1500 {
		steps.Must(t, b.Leave(t.Context(), steps.Enter(t, b, steps.Claim(fmt.Sprint("order", i))), driver.Exit{}))
	}
	short := steps.Enter(t, b, steps.TTL(steps.Claim("short"), 5*time.Second))
	steps.Must(t, steps.Renew(t, b, short))
	held := steps.Enter(t, b, steps.TTL(steps.Claim("held"), time.Hour))
	steps.Must(t, steps.Renew(t, b, held))
	steps.Must(t, b.Leave(t.Context(), steps.Enter(t, b, steps.Claim("marked")), driver.Exit{Mark: "done"}))
	steps.Granted(t, b, steps.Enter(t, b, steps.Claim("short"))) // the first lease has ended
	for _, name := range []string{"lease.gone.of-nobody", "note.gone.undone"} {
		steps.Must(t, steps.ErrOf(js.Publish(t.Context(), "$KV."+p.Bucket+"."+name, []byte("{}"))))
	}
	young := steps.Enter(t, b, steps.Claim("young"))
	before := time.UnixMicro(young.Token)
	steps.Must(t, b.Leave(t.Context(), young, driver.Exit{}))
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	steps.Is(t, "Forget", steps.ErrOf(storeOf(b).Forget(cut, before.UnixMicro())), context.Canceled)
	stale, err := storeOf(b).Forget(t.Context(), before.UnixMicro())
	steps.Must(t, err)
	slices.Sort(stale)
	if want := []string{"held", "short"}; !slices.Equal(stale, want) {
		t.Errorf("the keys %.200q are to be looked at, want %q", stale, want)
	}
	testserver.Eventually(t, time.Minute, "nothing idle is left", func() bool {
		left := p.has(t, js, ">")
		return len(left) == 5 && strings.HasPrefix(left[0], "lease.held.") &&
			slices.Equal(left[1:], []string{"line.held", "line.marked", "line.short", "line.young"})
	})
}
