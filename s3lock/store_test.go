package s3lock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/doctor"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/s3lock"
)

// bubble runs f in virtual time, on a bucket.
func bubble(t *testing.T, f func(t *testing.T, b *bucket, open func() driver.Backend)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		f(t, b, func() driver.Backend { return views(b)(t) })
	})
}

func lasting(key string, ttl time.Duration) driver.Claim { return steps.TTL(steps.Claim(key), ttl) }

func TestServerThatIgnoresConditionsGrantsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, b *bucket, open func() driver.Backend) {
		b.ignores = true
		_, err := open().Enter(t.Context(), steps.Claim("k"))
		if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "ignores If-Match") {
			t.Errorf("got %v", err)
		}
	})
}

func TestRaceFindsAServerThatComparesTooEarly(t *testing.T) {
	for _, early := range []bool{false, true} {
		bubble(t, func(t *testing.T, b *bucket, open func() driver.Backend) {
			b.early = early
			backends := []driver.Backend{open(), open(), open(), open()}
			got, err := doctor.Race(t.Context(), backends, 32, 20)
			if err != nil || got.Excludes() == early || early && got.Several == 0 {
				t.Errorf("early %v: got %+v, %v", early, got, err)
			}
		})
	}
}

// Whatever the phase of the clock that counts seconds, and though two servers disagree by nearly a second.
func TestNoLeaseEndsEarly(t *testing.T) {
	for range 60 {
		bubble(t, func(t *testing.T, b *bucket, open func() driver.Backend) {
			b.skew = func() time.Duration { return rand.N(time.Second) }
			holder, other := open(), open()
			ttl := 3*time.Second + rand.N(2*time.Second)
			time.Sleep(rand.N(time.Second))
			sent := time.Now()
			ticket := steps.Hold(t, holder, lasting("k", ttl))
			for range rand.N(3) {
				time.Sleep(rand.N(ttl * 3 / 4))
				sent = time.Now()
				steps.OK(t, steps.Renew(t, holder, ticket))
			}
			try := steps.NoWait(lasting("k", ttl))
			for got, err := other.Enter(t.Context(), try); err != nil || !got.Granted; {
				time.Sleep(50 * time.Millisecond)
				got, err = other.Enter(t.Context(), try)
			}
			if lasted := time.Since(sent); lasted < ttl || lasted > ttl+late {
				t.Errorf("a lease of %v lasted %v", ttl, lasted)
			}
		})
	}
}

// An operator ends a claim, and its Enter is sent again, by a store that counts whole seconds. It comes back neither
// before its lease would have ended, nor after a Leave within a TTL, at no moment of a second.
func TestIDStaysOutForItsWholeLease(t *testing.T) {
	for phase := range 10 {
		for what, out := range map[string]func(t *testing.T, b driver.Backend, ticket driver.Ticket) error{
			"Break": func(t *testing.T, b driver.Backend, ticket driver.Ticket) error {
				return b.Break(t.Context(), ticket.Key, ticket.Token, driver.Break{Reason: "out"})
			},
			"Leave": func(t *testing.T, b driver.Backend, ticket driver.Ticket) error {
				return b.Leave(t.Context(), ticket, driver.Exit{Tombstone: true})
			},
			"Adopt": func(t *testing.T, b driver.Backend, ticket driver.Ticket) error {
				return steps.ErrOf(b.(driver.Detacher).Adopt(t.Context(), ticket, lasting("k", 3*time.Second)))
			},
		} {
			bubble(t, func(t *testing.T, _ *bucket, open func() driver.Backend) {
				claim := lasting("k", 3*time.Second)
				time.Sleep(time.Duration(phase) * time.Second / 10)
				holder := open()
				ticket := steps.Hold(t, holder, claim)
				steps.OK(t, out(t, open(), ticket))
				time.Sleep(2990 * time.Millisecond)
				if got, err := holder.Enter(t.Context(), claim); !driver.Gone(err) {
					t.Errorf("%s, %d tenths of a second in: the claim came back as %+v, error %v", what, phase, got, err)
				}
			})
		}
	}
}

// Renewals are written where nobody else writes: a client far from the store keeps its lock beside a crowd.
func TestFarHolderKeepsItsLockBesideACrowd(t *testing.T) {
	bubble(t, func(t *testing.T, b *bucket, open func() driver.Backend) {
		holder := views(slowClient{b, 300 * time.Millisecond})(t)
		ticket := steps.Hold(t, holder, lasting("k", 6*time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		for range 4 {
			near := open()
			crowd.Go(func() {
				for ctx.Err() == nil {
					if w, err := near.Enter(ctx, lasting("k", time.Minute)); err == nil {
						_ = near.Leave(ctx, w, driver.Exit{})
					}
					time.Sleep(50 * time.Millisecond)
				}
			})
		}
		for range 10 {
			time.Sleep(2 * time.Second)
			steps.OK(t, steps.Renew(t, holder, ticket))
		}
		cancel()
		crowd.Wait()
	})
}

// slowClient has a round trip of a certain length.
type slowClient struct {
	*bucket
	trip time.Duration
}

func (c slowClient) Get(ctx context.Context, name string) (s3lock.Object, error) {
	time.Sleep(c.trip / 2)       // real time: none, its tests run in bubbles
	defer time.Sleep(c.trip / 2) // real time: none, its tests run in bubbles
	return c.bucket.Get(ctx, name)
}

func (c slowClient) Put(ctx context.Context, name, etag string, body []byte) (s3lock.Object, error) {
	time.Sleep(c.trip / 2)
	defer time.Sleep(c.trip / 2)
	return c.bucket.Put(ctx, name, etag, body)
}

// Requests and responses are lost, and others get 409 or 503, whether they took effect or not.
func TestLostRequestsLetNoTwoIn(t *testing.T) {
	for name, what := range map[string]error{
		"Cut":      errors.New("the connection was cut"),
		"Conflict": &s3lock.StatusError{Status: 409, Code: "ConditionalRequestConflict"},
		"SlowDown": &s3lock.StatusError{Status: 503, Code: "SlowDown"},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(10) {
				bubble(t, func(t *testing.T, b *bucket, open func() driver.Backend) {
					r := rand.New(rand.NewPCG(seed, seed))
					var mu sync.Mutex
					broken := true
					fails := func(verb, _ string) error {
						mu.Lock()
						defer mu.Unlock()
						if broken && (verb == "PUT" || name == "Cut") && r.IntN(8) == 0 {
							return what
						}
						return nil
					}
					b.before, b.after = fails, fails
					letNoTwoIn(t, open)
					mu.Lock()
					broken = false
					mu.Unlock()
					steps.Within(t, time.Minute, steps.Await(t, open(), steps.Enter(t, open(), steps.Claim("k"))))
					if t.Failed() {
						t.Fatalf("the seed is %d", seed)
					}
				})
			}
		})
	}
}

// A renewal may be on its way while others find the lease ended. Either it comes first, and the lock is not taken, or
// it comes too late, and its holder is told.
func TestRenewalThatIsUnderWayOutlivesAPurge(t *testing.T) {
	for _, renewed := range []bool{false, true} {
		bubble(t, func(t *testing.T, b *bucket, open func() driver.Backend) {
			held := make(chan struct{})
			holder := views(holds{b, "/lease/", held})(t)
			ticket := steps.Hold(t, holder, lasting("k", 5*time.Second))
			if renewed {
				close(held)
				time.Sleep(2 * time.Second)
				steps.OK(t, steps.Renew(t, holder, ticket))
				held = make(chan struct{})
				holder = views(holds{b, "/lease/", held})(t)
			}
			time.Sleep(2 * time.Second) // within one second, the lease is long enough
			renewal := make(chan error)
			go func() { renewal <- steps.Renew(t, holder, ticket) }()
			synctest.Wait() // the PUT is on its way
			time.Sleep(5*time.Second + late)
			next := open()
			taken := steps.Hold(t, next, steps.NoWait(lasting("k", time.Minute)))
			close(held)
			steps.Gone(t, "a renewal that came too late", <-renewal)
			steps.OK(t, steps.Renew(t, next, taken))
		})
	}
}

// An Enter that is sent again renews the lease of its claim by a swap, while a renewal for longer is on its way.
func TestSwapKeepsARenewalThatIsUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, b *bucket, open func() driver.Backend) {
		holder, waiter := open(), open()
		first := steps.Hold(t, holder, lasting("k", time.Minute))
		claim := lasting("k", 5*time.Second)
		ticket := steps.Enter(t, waiter, claim)
		steps.OK(t, steps.Renew(t, waiter, ticket)) // it has a record from now on
		steps.OK(t, holder.Leave(t.Context(), first, driver.Exit{}))
		ticket = steps.Granted(t, waiter, ticket)
		time.Sleep(2 * time.Second)
		swapped, once := make(chan struct{}), false
		b.before = func(verb, name string) error {
			if verb == "PUT" && strings.Contains(name, "/lease/") && !once {
				once = true
				<-swapped
			}
			return nil
		}
		longer := ticket
		longer.TTL = time.Minute
		renewal := make(chan error)
		go func() { renewal <- steps.Renew(t, waiter, longer) }()
		synctest.Wait() // the PUT is on its way
		steps.Enter(t, waiter, claim)
		close(swapped)
		steps.OK(t, <-renewal)
		time.Sleep(50 * time.Second)
		steps.Refused(t, holder, steps.NoWait(lasting("k", time.Minute)))
	})
}

// An Enter is sent again, and starts the lease of its claim again by a swap. The swap is under way while another
// process finds that the lease has ended.
func TestSwapThatRenewsIsUnderWayWhileTheLeaseIsEnded(t *testing.T) {
	for _, part := range []string{"/line/", "/"} {
		t.Run(part, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bucket, open func() driver.Backend) {
				claim, until, comes := lasting("k", 10*time.Second), make(chan struct{}), make(chan struct{})
				first := steps.Hold(t, open(), claim)
				time.Sleep(9 * time.Second)
				again := views(holds{b, part, until})(t)
				entered := make(chan driver.Ticket)
				go func() {
					ticket, err := again.Enter(t.Context(), claim)
					steps.OK(t, err)
					entered <- ticket
				}()
				synctest.Wait() // the first PUT is on its way
				time.Sleep(time.Second + late)
				next := views(holds{b, "/line/", comes})(t)
				taken := make(chan error)
				go func() {
					_, err := next.Enter(t.Context(), steps.NoWait(lasting("k", time.Minute)))
					taken <- err
				}()
				synctest.Wait() // it has ended the lease, if it is not too late
				close(until)
				ticket := <-entered
				close(comes)
				err := <-taken
				switch {
				case ticket.Granted && ticket.Token == first.Token && err == nil:
					t.Errorf("the claim got a lease of %v, and another holds the lock", ticket.Left)
				case !ticket.Granted && err != nil:
					t.Errorf("nobody holds the lock: %v", err)
				}
				if part == "/line/" {
					steps.Same(t, "the lease was renewed first; granted", ticket.Granted, true)
				}
			})
		})
	}
}

// holds holds back each PUT with that in its name.
type holds struct {
	*bucket
	part  string
	until chan struct{}
}

func (h holds) Put(ctx context.Context, name, etag string, body []byte) (s3lock.Object, error) {
	if strings.Contains(name, h.part) {
		<-h.until
	}
	return h.bucket.Put(ctx, name, etag, body)
}

func TestConflictThatTookNoEffectGrantsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, b *bucket, open func() driver.Backend) {
		backend, other := open(), open()
		first := true
		b.before = func(verb, name string) error {
			if verb == "PUT" && first && strings.Contains(name, "/line/") {
				first = false
				steps.Hold(t, other, steps.Claim("k"))
				return &s3lock.StatusError{Status: 409, Code: "ConditionalRequestConflict"}
			}
			return nil
		}
		steps.Refused(t, backend, steps.NoWait(steps.Claim("k")))
	})
}

func TestConflictThatTookEffectIsNoLoss(t *testing.T) {
	bubble(t, func(t *testing.T, b *bucket, open func() driver.Backend) {
		backend := open()
		first := true
		b.after = func(verb, name string) error {
			if verb == "PUT" && first && strings.Contains(name, "/line/") {
				first = false
				return &s3lock.StatusError{Status: 409, Code: "ConditionalRequestConflict"}
			}
			return nil
		}
		ticket := steps.Hold(t, backend, steps.Claim("k"))
		first = true
		steps.OK(t, backend.Leave(t.Context(), ticket, driver.Exit{}))
	})
}

// letNoTwoIn has three clients take one lock in turn.
func letNoTwoIn(t *testing.T, open func() driver.Backend) {
	var all sync.WaitGroup
	var mu sync.Mutex
	inside, last, grants := 0, int64(0), 0
	for range 3 {
		c, err := fencelock.New(open(), &fencelock.Options{TTL: 6 * time.Second})
		steps.Must(t, err)
		all.Go(func() {
			defer c.Close()
			for range 6 {
				lease, err := c.Lock(t.Context(), "k")
				if err != nil {
					continue
				}
				mu.Lock()
				if inside++; inside > 1 || int64(lease.Token()) <= last {
					t.Errorf("%d inside, token %d after %d", inside, lease.Token(), last)
				}
				last = int64(lease.Token())
				grants++
				mu.Unlock()
				time.Sleep(3 * time.Second)
				mu.Lock()
				inside--
				mu.Unlock()
				_ = lease.Release(t.Context())
			}
		})
	}
	all.Wait()
	if grants < 6 {
		t.Errorf("only %d grants", grants)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		status    int
		code      string
		permanent bool
		says      string
	}{
		{403, "AccessDenied", true, "allow s3:GetObject and s3:PutObject on fencelock/* and s3:ListBucket on the bucket"},
		{404, "NoSuchBucket", true, "create the bucket"},
		{403, "RequestTimeTooSkewed", true, "set the clock of this machine"},
		{501, "NotImplemented", true, "use a server that takes If-Match"},
		{301, "PermanentRedirect", true, "name the region of the bucket"},
		{400, "AuthorizationHeaderMalformed", true, "name the region of the bucket"},
		{503, "SlowDown", false, "SlowDown"},
	} {
		bubble(t, func(t *testing.T, b *bucket, open func() driver.Backend) {
			b.before = func(string, string) error {
				return &s3lock.StatusError{Status: c.status, Code: c.code, Err: errors.New("so it is")}
			}
			_, err := open().Enter(t.Context(), steps.Claim("orders/42"))
			if !errors.Is(err, driver.ErrRefused) || errors.Is(err, driver.ErrPermanent) != c.permanent ||
				!strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), `"orders/42"`) {
				t.Errorf("%d: got %v", c.status, err)
			}
		})
	}
}

func TestAnotherFormatIsRefused(t *testing.T) {
	for _, other := range []string{"1", "3"} { // the first one said in another way when a lease ends
		bubble(t, func(t *testing.T, b *bucket, open func() driver.Backend) {
			steps.Must(t, steps.ErrOf(b.Put(t.Context(), "fencelock/line/k", "", []byte(`{"format":`+other+`}`))))
			_, err := open().Enter(t.Context(), steps.Claim("k"))
			if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "has format "+other) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The cost table of the documentation.
func TestRequestsAreThoseOfTheTable(t *testing.T) {
	bubble(t, func(t *testing.T, b *bucket, open func() driver.Backend) {
		counts := map[string]int{}
		var mu sync.Mutex
		b.before = func(verb, _ string) error {
			mu.Lock()
			defer mu.Unlock()
			counts[verb]++
			return nil
		}
		during := func(what string, puts, gets int, f func()) {
			mu.Lock()
			clear(counts)
			mu.Unlock()
			f()
			mu.Lock()
			defer mu.Unlock()
			differs := func(got, want, by int) bool { return max(got-want, want-got) > max(by, want/50) }
			if differs(counts["PUT"], puts, 0) || differs(counts["GET"], gets, 2) { // an alarm may look at the line
				t.Errorf("%s: got %v; want %d PUT and %d GET", what, counts, puts, gets)
			}
		}
		holder, err := fencelock.New(open(), nil)
		steps.Must(t, err)
		defer holder.Close()
		var lease *fencelock.Lease
		lock := func() {
			lease, err = holder.Lock(t.Context(), "k")
			steps.Must(t, err)
		}
		lock()
		_ = lease.Release(t.Context())
		during("a free lock", 1, 1, lock)
		during("its release", 1, 0, func() { _ = lease.Release(t.Context()) })
		lock()
		during("a holder, for an hour", 360, 4_320, func() { time.Sleep(time.Hour) })
		waiter, err := fencelock.New(open(), nil)
		steps.Must(t, err)
		defer waiter.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _, _ = waiter.Lock(ctx, "k") })
		time.Sleep(time.Minute)
		during("a holder and a waiter, for an hour", 720, 23_040, func() { time.Sleep(time.Hour) })
		cancel()
		all.Wait()
		_ = lease.Release(t.Context())
	})
}
