package swapkv

import (
	"context"
	"iter"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/swaplock"
)

// told is a store that says what time it is.
type told struct {
	Client
	now time.Time
}

func (c told) Get(context.Context, string) (Object, error) { return Object{Now: c.now}, nil }

// The machine sleeps after the store has said what time it is. A lease that is lent by an older time would be over for
// others while its claim counts on it.
func TestTimeOfTheStoreGoesOnWhileTheMachineSleeps(t *testing.T) {
	if _, ok := clock.Asleep(); !ok {
		t.Log("this platform does not say how long it slept; nothing is promised here")
		return
	}
	began := time.Now()
	s := New(told{now: began})
	steps.Must(t, steps.ErrOf(s.get(t.Context(), "line")))
	s.clock.Skip(5 * time.Second)
	if now, err := s.now(t.Context(), "line"); err != nil || now.Sub(began) < 5*time.Second {
		t.Errorf("now is %v after the store said so, error %v", now.Sub(began), err)
	}
	if late := s.latest().Sub(began); late < 5*time.Second {
		t.Errorf("latest is %v after the store said so", late)
	}
}

// box is a store with a Mailbox. Each request waits for hold, if that is set.
type box struct {
	mu      sync.Mutex
	objects map[string]Object
	last    int64
	hold    func(ctx context.Context, what, name string)
}

func (b *box) begin(ctx context.Context, what, name string) func() {
	if b.hold != nil {
		b.hold(ctx, what, name)
	}
	b.mu.Lock()
	return b.mu.Unlock
}

func (b *box) LineName(key string) string         { return "line." + key }
func (b *box) LeaseName(key, lease string) string { return "lease." + key + "." + lease }

func (b *box) Get(ctx context.Context, name string) (Object, error) {
	defer b.begin(ctx, "get", name)()
	o := b.objects[name]
	o.Now = time.Now()
	return o, nil
}

func (b *box) Put(ctx context.Context, name, version string, value []byte) (string, error) {
	defer b.begin(ctx, "put", name)()
	if b.objects[name].Version != version {
		return "", nil
	}
	b.last++
	b.objects[name] = Object{Version: strconv.FormatInt(b.last, 10), Value: value, Modified: time.Now()}
	return b.objects[name].Version, nil
}

func (b *box) LineNames(context.Context, string) iter.Seq2[string, error] { return nil }

func (b *box) Beside(ctx context.Context, line string) (Beside, error) {
	defer b.begin(ctx, "list", line)()
	leases := map[string]bool{}
	for name := range b.objects {
		leases[name] = strings.HasPrefix(name, "lease.")
	}
	return Beside{Leases: leases, Now: time.Now()}, nil
}

func (b *box) Remove(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.objects, name)
}

// The first renewal of a lease is sent, and nobody hears what becomes of it. The second one reads the line. Then the
// lease ends, another client takes the lock, and the first renewal makes its object, which the second one finds.
func TestRenewalFindsWhatALateOneHasMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &box{objects: map[string]Object{}}
		a, other := New(b), New(b)
		_, v, _, err := a.read(t.Context(), "line.k")
		steps.Must(t, err)
		held := &swaplock.Change{Seen: v}
		held.Holder, held.Expires = "id", time.Now().Add(time.Second)
		steps.Must(t, steps.ErrOf(a.Swap(t.Context(), "k", held)))
		land, read := make(chan struct{}), make(chan struct{})
		b.hold = func(ctx context.Context, what, name string) {
			switch late := ctx.Value(first{}) != nil; {
			case late && what == "put":
				<-land
			case ctx.Value(second{}) != nil && what == "get" && strings.HasPrefix(name, "lease."):
				<-read
			}
		}
		renewal := []swaplock.Lease{{Key: "k", ID: "id", TTL: time.Minute}}
		renew := func(which any) <-chan bool {
			alive := make(chan bool, 1)
			go func() {
				got, err := a.Renew(context.WithValue(t.Context(), which, true), renewal)
				alive <- err == nil && got[0]
			}()
			synctest.Wait()
			return alive
		}
		one, two := renew(first{}), renew(second{})
		time.Sleep(2 * time.Second)
		_, v, st, err := other.read(t.Context(), "line.k")
		steps.Must(t, err)
		taken := &swaplock.Change{If: st.Version, Seen: v, Ended: st.Expires}
		taken.Holder, taken.Expires = "next", time.Now().Add(time.Minute)
		if version, err := other.Swap(t.Context(), "k", taken); version == "" || err != nil {
			t.Fatalf("the lock was not taken, error %v", err)
		}
		close(land)
		steps.Same(t, "the first renewal has had success", <-one, false)
		close(read)
		steps.Same(t, "the second renewal has had success", <-two, false)
	})
}

type (
	first  struct{} // in the context of the first renewal
	second struct{}
)
