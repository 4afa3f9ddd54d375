package promfence_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/faulty"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/promfence"
)

var must = steps.Must

var bg = context.Background()

// values returns the samples of reg by name and labels, as Prometheus writes them: of a
// histogram the count and the sum.
func values(t *testing.T, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := strings.TrimPrefix(f.GetName(), "fencelock_")
			series := name + "{" + strings.Join(labels, ",") + "}"
			if h := m.GetHistogram(); h != nil {
				found[series+" count"], found[series+" sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
			} else {
				found[series] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return found
}

// want checks some of the samples of reg.
func want(t *testing.T, reg prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	synctest.Wait() // for the events
	got := values(t, reg)
	for series, value := range want {
		if v, ok := got[series]; !ok || v < value-.1 || v > value+.1 {
			t.Errorf("%s is %v (there: %v), want %v", series, v, ok, value)
		}
	}
	if t.Failed() {
		for series, v := range got {
			t.Logf("%s %v", series, v)
		}
	}
}

// detaching is a faulty way to a store that can pass leases on.
type detaching struct {
	*faulty.Backend
	driver.Detacher
}

// client returns a Client with metrics in reg.
func client(t *testing.T, b driver.Backend, reg prometheus.Registerer, opts ...promfence.Option) *fencelock.Client {
	t.Helper()
	on, err := promfence.OnEvent(reg, opts...)
	must(t, err)
	c := testclient.New(t, b, &fencelock.Options{TTL: 30 * time.Second, OnEvent: on})
	t.Cleanup(func() { c.Close() })
	return c
}

func lock(t *testing.T, c *fencelock.Client, opts ...fencelock.Option) *fencelock.Lease {
	t.Helper()
	return testclient.Lock(t, c, "orders/42", opts...)
}

func TestLifeOfALockInMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		store := memlock.New()
		c := client(t, store, reg)
		l := lock(t, c)
		time.Sleep(25 * time.Second) // two renewals, each with two thirds of the lease left
		want(t, reg, map[string]float64{
			"wait_seconds{kind=exclusive,result=acquired} count": 1,
			"renewals_total{kind=exclusive}":                     2,
			"lease_left_seconds{kind=exclusive} count":           2,
			"lease_left_seconds{kind=exclusive} sum":             2 * 19.7,
			"held{kind=exclusive}":                               1,
			"oldest_hold_seconds{kind=exclusive}":                25,
			"waiting{kind=exclusive}":                            0,
			"held{kind=shared}":                                  0,
		})
		granted := make(chan *fencelock.Lease)
		go func() { granted <- lock(t, c) }()
		time.Sleep(35 * time.Second)
		want(t, reg, map[string]float64{
			"waiting{kind=exclusive}":             1,
			"oldest_wait_seconds{kind=exclusive}": 35,
			"line_ahead{kind=exclusive} sum":      1,
		})
		must(t, l.Release(bg))
		l = <-granted
		want(t, reg, map[string]float64{
			"wait_seconds{kind=exclusive,result=acquired} sum": 35,
			"hold_seconds{kind=exclusive,result=released} sum": 60,
			"handoffs_total{kind=exclusive}":                   1,
			"held{kind=exclusive}":                             1,
			"oldest_hold_seconds{kind=exclusive}":              0,
			"waiting{kind=exclusive}":                          0,
		})
		other := testclient.New(t, store, nil)
		must(t, other.Break(bg, "orders/42", l.Token(), fencelock.Break{Reason: "test", Notice: 10 * time.Second}))
		time.Sleep(time.Minute)
		want(t, reg, map[string]float64{
			"revocations_total{kind=exclusive}":                1,
			"losses_total{cause=broken,kind=exclusive}":        1,
			"hold_seconds{kind=exclusive,result=lost} count":   1,
			"hold_seconds{kind=exclusive,result=released} sum": 60,
			"held{kind=exclusive}":                             0,
		})
		r, err := c.Acquire(bg, "pool", 2, 3)
		must(t, err)
		want(t, reg, map[string]float64{"held{kind=permits}": 1})
		must(t, r.Release(bg))
		problems, err := testutil.GatherAndLint(reg)
		must(t, err)
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	})
}

func TestResultsAndCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		store := memlock.New()
		wire := faulty.New(store, 1, faulty.Options{})
		c := client(t, detaching{wire, store}, reg)
		l := lock(t, c)
		refuse := func(ctx context.Context, opts ...fencelock.Option) {
			t.Helper()
			if _, err := c.Lock(ctx, "orders/42", opts...); err == nil {
				t.Error("granted")
			}
		}
		refuse(bg, fencelock.Wait(time.Second))
		refuse(bg, fencelock.TTL(-1))
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		refuse(ctx)
		wire.Set(faulty.Options{Fail: 1})
		if _, err := c.Lock(bg, "another", fencelock.Wait(time.Second)); err == nil {
			t.Error("granted")
		}
		<-l.Context().Done()
		wire.Set(faulty.Options{})
		time.Sleep(time.Minute)

		stalled := lock(t, c, fencelock.Progress(20*time.Second))
		<-stalled.Context().Done()
		time.Sleep(time.Minute)
		long := lock(t, c, fencelock.MaxHold(time.Minute))
		<-long.Context().Done()
		time.Sleep(time.Minute)
		late := lock(t, c, fencelock.NoRenewal())
		<-late.Context().Done()
		time.Sleep(time.Minute)
		l = lock(t, c)
		_, err := c.Detach(bg, l)
		must(t, err)
		want(t, reg, map[string]float64{
			"wait_seconds{kind=exclusive,result=not_acquired} sum": 1,
			"wait_seconds{kind=exclusive,result=invalid} count":    1,
			"wait_seconds{kind=exclusive,result=canceled} sum":     1,
			"wait_seconds{kind=exclusive,result=unavailable} sum":  1,
			"losses_total{cause=expired,kind=exclusive}":           2,
			"losses_total{cause=stalled,kind=exclusive}":           1,
			"losses_total{cause=max_hold,kind=exclusive}":          1,
			"at_risk_total{cause=store,kind=exclusive}":            1,
			"at_risk_total{cause=stalled,kind=exclusive}":          1,
			"at_risk_total{cause=late,kind=exclusive}":             1,
			"store_errors_total{kind=exclusive}":                   2, // the refusal, and the risk
			"hold_seconds{kind=exclusive,result=detached} count":   1,
			"held{kind=exclusive}":                                 0,
			"waiting{kind=exclusive}":                              0,
		})
		must(t, c.Close())
		if _, err := c.Lock(bg, "orders/42"); err == nil {
			t.Error("granted")
		}
		want(t, reg, map[string]float64{"wait_seconds{kind=exclusive,result=closed} count": 1})
	})
}

// The Clients of a program share the metrics of a registry. A key is a label only by a
// function.
func TestClientsShareARegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		byPrefix := promfence.Lock(func(key string) string {
			prefix, _, _ := strings.Cut(key, "/")
			return prefix
		})
		a, b := client(t, memlock.New(), reg, byPrefix), client(t, memlock.New(), reg, byPrefix)
		la := lock(t, a) // the same key and token, in two stores
		time.Sleep(10 * time.Second)
		lb := lock(t, b)
		want(t, reg, map[string]float64{
			"held{kind=exclusive,lock=orders}":                               2,
			"oldest_hold_seconds{kind=exclusive,lock=orders}":                10,
			"wait_seconds{kind=exclusive,lock=orders,result=acquired} count": 2,
		})
		must(t, la.Release(bg))
		want(t, reg, map[string]float64{"held{kind=exclusive,lock=orders}": 1})
		must(t, lb.Release(bg))
		_, err := promfence.OnEvent(reg)
		if err == nil || !strings.Contains(err.Error(), "promfence: ") {
			t.Errorf("with other labels on the same registry: %v", err)
		}
	})
}

// An OnEvent that was too slow has missed events, so nobody knows what is open. Any event may be the one that says so.
func TestDroppedEventsCloseWhatIsOpen(t *testing.T) {
	reg := prometheus.NewRegistry()
	on, err := promfence.OnEvent(reg)
	must(t, err)
	on(fencelock.Event{Type: fencelock.EventWaiting, Key: "k", Standing: held(0), HeldBy: &fencelock.HeldError{}, Wait: 1, Time: time.Now()})
	on(fencelock.Event{Type: fencelock.EventAcquired, Key: "k", Standing: held(1), Time: time.Now()})
	synctest.Test(t, func(t *testing.T) {
		want(t, reg, map[string]float64{"held{kind=exclusive}": 1, "waiting{kind=exclusive}": 1, "events_dropped_total{}": 0})
		on(fencelock.Event{Type: fencelock.EventAcquired, Key: "k", Standing: held(2), Time: time.Now(), Dropped: 7})
		want(t, reg, map[string]float64{"held{kind=exclusive}": 1, "waiting{kind=exclusive}": 0, "events_dropped_total{}": 7})
		on(fencelock.Event{Type: fencelock.EventWarning, Key: "k", Time: time.Now(), Dropped: 1})
		want(t, reg, map[string]float64{"held{kind=exclusive}": 0, "events_dropped_total{}": 8})
	})
	runtime.KeepAlive(on)
}

// What measures a Client that is gone takes no memory, and what they had open is forgotten.
func TestForgottenClientsAreFreed(t *testing.T) {
	reg := prometheus.NewRegistry()
	func() {
		on, err := promfence.OnEvent(reg)
		must(t, err)
		on(fencelock.Event{Type: fencelock.EventAcquired, Key: "k", Standing: held(1), Time: time.Now()})
		steps.Same(t, "held", values(t, reg)["held{kind=exclusive}"], 1)
		runtime.KeepAlive(on)
	}()
	testserver.Eventually(t, time.Minute, "what a Client held that is gone is not counted", func() bool {
		runtime.GC()
		return values(t, reg)["held{kind=exclusive}"] == 0
	})
}

// held is an exclusive claim.
func held(token fence.Token) fencelock.Standing {
	return fencelock.Standing{Kind: "exclusive", Token: token}
}
