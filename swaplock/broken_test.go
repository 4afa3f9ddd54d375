package swaplock_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/swaplock"
)

// brokenStore is a toy that does one thing wrong.
type brokenStore struct {
	*toy
	read   func(ctx context.Context, key string, arrivals int) (swaplock.State, error)
	swap   func(ctx context.Context, key string, c *swaplock.Change) (string, error)
	renew  func(ctx context.Context, ls []swaplock.Lease) ([]bool, error)
	purge  func(ctx context.Context, key string, ids []string) error
	watch  func(ctx context.Context, w func() map[string]string, hear func(string, []swaplock.News)) error
	arrive func(ctx context.Context, key string, a *swaplock.Arrival) (*swaplock.Place, error)
}

func newBrokenStore() *brokenStore {
	s := newToy()
	return &brokenStore{s, s.Read, s.Swap, s.Renew, s.Purge, s.Watch, s.Arrive}
}

func (s *brokenStore) Read(ctx context.Context, key string, arrivals int) (swaplock.State, error) {
	return s.read(ctx, key, arrivals)
}

func (s *brokenStore) Swap(ctx context.Context, key string, c *swaplock.Change) (string, error) {
	return s.swap(ctx, key, c)
}

func (s *brokenStore) Renew(ctx context.Context, ls []swaplock.Lease) ([]bool, error) {
	return s.renew(ctx, ls)
}

func (s *brokenStore) Purge(ctx context.Context, key string, ids []string) error {
	return s.purge(ctx, key, ids)
}

func (s *brokenStore) Watch(
	ctx context.Context, waiting func() map[string]string, hear func(string, []swaplock.News),
) error {
	return s.watch(ctx, waiting, hear)
}

func (s *brokenStore) Arrive(ctx context.Context, key string, a *swaplock.Arrival) (*swaplock.Place, error) {
	return s.arrive(ctx, key, a)
}

// reads changes what is read.
func (s *brokenStore) reads(f func(st *swaplock.State)) {
	s.read = func(ctx context.Context, key string, arrivals int) (swaplock.State, error) {
		st, err := s.toy.Read(ctx, key, arrivals)
		f(&st)
		return st, err
	}
}

// swaps changes what is swapped, some time after it was sent: others come between.
func (s *brokenStore) swaps(f func(key string, c *swaplock.Change)) {
	s.swap = func(ctx context.Context, key string, c *swaplock.Change) (string, error) {
		time.Sleep(time.Millisecond) // real time: none, the laws are played in bubbles
		wrong := *c
		f(key, &wrong)
		return s.toy.Swap(ctx, key, &wrong)
	}
}

// underOtherKeys lets the store see other keys than its callers do.
func (s *brokenStore) underOtherKeys(f func(key string) string) {
	s.read = func(ctx context.Context, key string, n int) (swaplock.State, error) {
		return s.toy.Read(ctx, f(key), n)
	}
	s.swap = func(ctx context.Context, key string, c *swaplock.Change) (string, error) {
		return s.toy.Swap(ctx, f(key), c)
	}
	s.renew = func(ctx context.Context, ls []swaplock.Lease) ([]bool, error) {
		for i := range ls {
			ls[i].Key = f(ls[i].Key)
		}
		return s.toy.Renew(ctx, ls)
	}
	s.purge = func(ctx context.Context, key string, ids []string) error { return s.toy.Purge(ctx, f(key), ids) }
}

// brokenStores do one thing wrong each. What List does wrong is seen by its callers as it is, and drivertest has
// backends that do that.
var brokenStores = []struct {
	name    string
	arrives bool   // claims can arrive
	law     string // which must fail
	says    string // an error that says what is wrong
	wreck   func(s *brokenStore)
}{
	{"no time", false, "Grant/FreeLockIsGrantedAtOnce", "State.Now is not set", func(s *brokenStore) {
		s.reads(func(st *swaplock.State) { st.Now = time.Time{} })
	}},
	{"no version", false, "Grant/FreeLockIsGrantedAtOnce", "State.Version is not set", func(s *brokenStore) {
		s.reads(func(st *swaplock.State) { st.Version = "" })
	}},
	{"the old version", false, "Grant/FreeLockIsGrantedAtOnce", "Swap returned the version that it has replaced", func(s *brokenStore) {
		s.swap = func(ctx context.Context, key string, c *swaplock.Change) (string, error) {
			_, err := s.toy.Swap(ctx, key, c)
			return c.If, err
		}
	}},
	{"a swap that does nothing and says that it has won", false, "Grant/HolderExcludesOthers", "", func(s *brokenStore) {
		n := 0
		s.swap = func(ctx context.Context, key string, c *swaplock.Change) (string, error) {
			n++
			return fmt.Sprint("v", n), nil
		}
	}},
	{"a swap that says that it was lost", false, "Grant/FreeLockIsGrantedAtOnce", "the claim is gone", func(s *brokenStore) {
		s.swap = func(ctx context.Context, key string, c *swaplock.Change) (string, error) {
			_, err := s.toy.Swap(ctx, key, c)
			return "", err
		}
	}},
	{"a swap that does nothing", false, "Grant/FreeLockIsGrantedAtOnce", "Swap or Purge does nothing", func(s *brokenStore) {
		s.swap = func(context.Context, string, *swaplock.Change) (string, error) { return "", nil }
	}},
	{"If is ignored", false, "Concurrent/OneInsideAtATime", "", func(s *brokenStore) {
		s.swaps(func(key string, c *swaplock.Change) {
			st, _ := s.toy.Read(context.Background(), key, 0)
			c.If = st.Version
		})
	}},
	{"Before is ignored", false, "Expiry/ExpiredClaimIsGone", "", func(s *brokenStore) {
		s.swaps(func(_ string, c *swaplock.Change) { c.Before = time.Time{} })
	}},
	{"Last falls", true, "Grant/ReadersShareAndWritersExclude", "", func(s *brokenStore) {
		s.swaps(func(key string, c *swaplock.Change) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if k, _ := s.key(key); k.version == c.If && (c.IfLast == 0 || c.IfLast == k.content.Last) {
				k.content.Last = c.Last
			}
		})
	}},
	{"a swap takes a renewal back", false, "Lease/RenewalBesideAnEnterCounts", "", func(s *brokenStore) {
		s.swaps(func(key string, c *swaplock.Change) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if k, _ := s.key(key); k.version == c.If && c.Ended.IsZero() {
				k.content.Expires = c.Expires
			}
		})
		s.renew = func(ctx context.Context, ls []swaplock.Lease) ([]bool, error) {
			time.Sleep(time.Millisecond / 2) // and lands before the swap
			return s.toy.Renew(ctx, ls)
		}
	}},
	{"Lend is ignored", false, "Lease/RenewKeepsClaimsAlive", "", func(s *brokenStore) {
		s.swaps(func(_ string, c *swaplock.Change) { c.Lend = nil })
	}},
	{"Drop is ignored", false, "Expiry/ExpiredWaiterThatRenewedLetsOthersIn", "", func(s *brokenStore) {
		s.swaps(func(_ string, c *swaplock.Change) { c.Drop = nil })
	}},
	{"Arrivals is ignored", true, "Grant/FreeLockIsGrantedAtOnce", "", func(s *brokenStore) {
		s.swaps(func(_ string, c *swaplock.Change) { c.Arrivals = 0 })
	}},
	{"the mark is lost", false, "Mark", "", func(s *brokenStore) {
		s.swaps(func(_ string, c *swaplock.Change) { c.Mark = "" })
	}},
	{"Next is not set", false, "Grant/FreeLockIsGrantedAtOnce", "Swap did not set Change.Next", func(s *brokenStore) {
		s.reads(func(st *swaplock.State) { st.Seen = &st.Version })
	}},
	{"nothing is told", false, "Wake", "", func(s *brokenStore) {
		s.watch = func(ctx context.Context, _ func() map[string]string, hear func(string, []swaplock.News)) error {
			hear("", nil)
			<-ctx.Done()
			return ctx.Err()
		}
	}},
	{"news of a swap that was lost", false, "Concurrent/LeaveIfWaitingOrGrantNotBoth", "", func(s *brokenStore) {
		s.swap = func(ctx context.Context, key string, c *swaplock.Change) (string, error) {
			s.tell(key, c.News)
			if st, _ := s.toy.Read(ctx, key, 0); st.Version != c.If {
				return "", nil
			}
			time.Sleep(time.Millisecond)
			if len(c.News) > 0 { // a claim that leaves at the same time is out by now
				time.Sleep(time.Millisecond)
			}
			return s.toy.Swap(ctx, key, c)
		}
	}},
	{"an ended lease is renewed", false, "Grant/NoTrace", "", func(s *brokenStore) {
		s.renew = func(ctx context.Context, ls []swaplock.Lease) ([]bool, error) {
			alive, err := s.toy.Renew(ctx, ls)
			for i := range alive {
				alive[i] = true
			}
			return alive, err
		}
	}},
	{"Renew returns nothing", false, "Grant/NoTrace", "Renew of 1 leases returned 0", func(s *brokenStore) {
		s.renew = func(context.Context, []swaplock.Lease) ([]bool, error) { return nil, nil }
	}},
	{"a renewal shortens a lease", false, "Lease/RenewNeverShortens", "", func(s *brokenStore) {
		s.renew = func(ctx context.Context, ls []swaplock.Lease) ([]bool, error) {
			alive, err := s.toy.Renew(ctx, ls)
			s.mu.Lock()
			defer s.mu.Unlock()
			for i, l := range ls {
				if k, now := s.key(l.Key); alive[i] && k.content.Holder == l.ID {
					k.content.Expires = now.Add(l.TTL)
				}
			}
			return alive, err
		}
	}},
	{"Purge does nothing", false, "Expiry/ExpiredWaiterThatRenewedLetsOthersIn", "Swap or Purge does nothing", func(s *brokenStore) {
		s.purge = func(context.Context, string, []string) error { return nil }
	}},
	{"Purge removes all records", false, "Expiry/ExpiredWaiterThatRenewedLetsOthersIn", "", func(s *brokenStore) {
		s.purge = func(_ context.Context, key string, _ []string) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			k, _ := s.key(key)
			clear(k.records)
			return nil
		}
	}},
	{"news of another key", false, "Wake/WakeAll", "", func(s *brokenStore) {
		s.watch = func(ctx context.Context, w func() map[string]string, hear func(string, []swaplock.News)) error {
			return s.toy.Watch(ctx, w, func(key string, news []swaplock.News) { hear(strings.TrimSuffix(key, "."), news) })
		}
	}},
	{"upper case is lower case", false, "Key/KeysAreBytes", "", func(s *brokenStore) { s.underOtherKeys(strings.ToLower) }},
	{"Read returns some arrivals for all", true, "Grant/RepeatedEnterOfWaiterAnswersItsTicket", "says that there are more", func(s *brokenStore) {
		s.read = func(ctx context.Context, key string, _ int) (swaplock.State, error) { return s.toy.Read(ctx, key, 2) }
	}},
	{"the clock of Read is ahead", false, "Lease/WaitTTLIsForTheWait", "", func(s *brokenStore) {
		s.reads(func(st *swaplock.State) { st.Now = st.Now.Add(time.Minute) })
	}},
	{"the clock of Read is behind", false, "Lease/EnterRenews", "", func(s *brokenStore) {
		s.reads(func(st *swaplock.State) { st.Now = st.Now.Add(-time.Minute) })
	}},
	{"the clock of Read goes back", false, "Grant/NoWaitIsRefusedWithTheHead", "", func(s *brokenStore) {
		n := 0
		s.reads(func(st *swaplock.State) {
			s.mu.Lock()
			defer s.mu.Unlock()
			n++
			st.Now = st.Now.Add(-time.Duration(n%3) * time.Minute)
		})
	}},
	{"times are cut to seconds", false, "Lease/EnterRenews", "", func(s *brokenStore) {
		s.swaps(func(_ string, c *swaplock.Change) { c.Expires = c.Expires.Truncate(time.Second) })
	}},
	{"an arrival has no token", true, "Grant/FreeLockIsGrantedAtOnce", "Arrive did not set Place.Token", func(s *brokenStore) {
		s.arrive = func(ctx context.Context, key string, a *swaplock.Arrival) (*swaplock.Place, error) {
			p, err := s.toy.Arrive(ctx, key, a)
			if p != nil {
				p.Token = 0
			}
			return p, err
		}
	}},
	{"an arrival that does not fit is granted", true, "Grant/SecondWaitsBehindFirst", "", func(s *brokenStore) {
		s.arrive = func(ctx context.Context, key string, a *swaplock.Arrival) (*swaplock.Place, error) {
			p, err := s.toy.Arrive(ctx, key, a)
			if p != nil {
				p.Granted = true
			}
			return p, err
		}
	}},
	{"Open is ignored", true, "Grant/SemaphoreIsFullAtItsSize", "", func(s *brokenStore) {
		s.swaps(func(_ string, c *swaplock.Change) { c.Open = time.Now().Add(time.Hour) })
	}},
}

// broken names the store that another process judges.
const broken = "FENCELOCK_BROKEN_STORE"

// TestStoreUnderJudgement holds one of brokenStores to the laws.
func TestStoreUnderJudgement(t *testing.T) {
	for _, c := range brokenStores {
		if c.name != os.Getenv(broken) {
			continue
		}
		s := newBrokenStore()
		c.wreck(s)
		open := views(onlySwaps{s})
		if c.arrives {
			open = views(s)
		}
		drivertest.Run(t, open, drivertest.InBubbles(), drivertest.ExpiryLag(0))
	}
}

// TestEveryBrokenStoreIsFlagged has the judge look at stores that do one thing wrong each.
func TestEveryBrokenStoreIsFlagged(t *testing.T) {
	for _, c := range brokenStores {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestStoreUnderJudgement$/"+c.law)
			cmd.Env = append(os.Environ(), broken+"="+c.name)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.law) || !strings.Contains(string(out), c.says) {
				t.Errorf("%s does not notice, error %v:\n%s", c.law, err, out)
			}
		})
	}
}
