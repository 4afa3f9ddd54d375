package s3lock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/swaplock"
)

// DefaultPrefix is where locks are kept if Options do not say otherwise.
const DefaultPrefix = "fencelock/"

// Options change how locks are kept. Nil and the zero value are ready for use.
type Options struct {
	// Prefix begins the names of all objects; DefaultPrefix if empty. All programs that share locks use
	// the same one.
	Prefix string
	// Poll is how often a waiter looks whether its line has changed, by one GET; 500 ms if 0.
	Poll time.Duration
	// Skew is how much the clocks of two servers behind one address may differ; 1 s if 0. The lock of a crashed
	// holder is free so much later.
	Skew time.Duration
}

// minTTL leaves time for the requests of a renewal.
const minTTL = 3 * time.Second

// Backend keeps lines of claims in a bucket. Its methods may be called from many goroutines at once.
type Backend struct {
	*swaplock.Backend
	store   *store
	invalid error
}

// New returns a backend that keeps its locks in the bucket of client. It sends no request: Open returns an error for
// bad Options.
func New(client Client, o *Options) *Backend {
	if o == nil {
		o = &Options{}
	}
	return open(client, *o, time.Second+cmp.Or(o.Skew, time.Second))
}

func open(client Client, o Options, grace time.Duration) *Backend {
	o.Prefix, o.Poll = cmp.Or(o.Prefix, DefaultPrefix), cmp.Or(o.Poll, 500*time.Millisecond)
	s := &store{client: client, o: o, grace: grace}
	b := &Backend{Backend: swaplock.New(s), store: s}
	if client == nil || len(o.Prefix) > 512 || o.Poll < 0 || o.Skew < 0 {
		b.invalid = errors.New("s3: want a client, a prefix of 512 bytes at most, and no negative Poll or Skew")
	}
	return b
}

// Open takes the backend over for one Client, and says whether the Options are bad.
func (b *Backend) Open() error { return b.Take(b.invalid) }

// store is the swaplock.Store of a Backend.
type store struct {
	client Client
	o      Options
	// grace is by how much the clock that has stamped an object may be ahead of the Date of a later response: both
	// count whole seconds.
	grace time.Duration

	mu      sync.Mutex
	applies bool      // the server has shown that it applies conditions
	date    time.Time // of the last response
	dated   time.Time // when it came, by the clock of this process
}

// Traits say what the store is.
func (s *store) Traits() swaplock.Traits {
	return swaplock.Traits{Name: "s3", Namespace: s.o.Prefix, MinTTL: minTTL, Grace: s.grace}
}

func (s *store) get(ctx context.Context, name string) (Object, error) {
	o, err := s.client.Get(ctx, name)
	s.saw(o.Date)
	return o, err
}

func (s *store) put(ctx context.Context, name, etag string, body []byte) (Object, error) {
	o, err := s.client.Put(ctx, name, etag, body)
	s.saw(o.Date)
	return o, err
}

func (s *store) saw(date time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !date.IsZero() {
		s.date, s.dated = date, time.Now()
	}
}

// now is at or before the time of the store.
func (s *store) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.date.Add(time.Since(s.dated))
}

func (s *store) document(ctx context.Context, key string) (document, Object, error) {
	o, err := s.get(ctx, s.lineName(key))
	if err != nil {
		return document{}, o, err
	}
	d, err := parse(s.lineName(key), o)
	return d, o, err
}

// Read costs one GET, and one for each lease that may have been renewed.
func (s *store) Read(ctx context.Context, key string, _ int) (swaplock.State, error) {
	_, st, err := s.read(ctx, s.lineName(key))
	return st, s.failed(ctx, err, "read the line of", key, false)
}

func (s *store) read(ctx context.Context, name string) (d document, st swaplock.State, err error) {
	o, err := s.get(ctx, name)
	if err != nil {
		return d, st, err
	}
	if d, err = parse(name, o); err != nil {
		return d, st, err
	}
	st = swaplock.State{Now: o.Date, Records: map[string]time.Time{}, Content: swaplock.Content{
		Last: d.Last, Mark: string(d.Mark), MarkedBy: string(d.MarkedBy),
		Holder: string(d.Holder), Expires: d.Expires, Document: d.Line,
	}}
	ends := make([]time.Time, len(d.Leases))
	err = driverutil.Each(len(d.Leases), atOnce, func(i int) (err error) {
		ref := &d.Leases[i]
		var l lease
		l, _, ends[i], err = s.readLease(ctx, &d, ref)
		ref.Ended = ref.ID != d.Holder && (ends[i].IsZero() || !l.Ended.IsZero())
		return err
	})
	for i, ref := range d.Leases {
		if ref.ID == d.Holder {
			st.Expires = ends[i]
		} else if !ref.Ended {
			st.Records[string(ref.ID)] = ends[i]
		}
	}
	st.Version = d.version()
	return d, st, err
}

// Swap costs one PUT, one more for each lease that it lends, and two requests if the holder's lease has ended.
//
// A server compares only the ETag, so Change.Before is compared here, and the PUT may land later. Then the document
// shows that nobody has taken the place of a claim that has ended meanwhile.
func (s *store) Swap(ctx context.Context, key string, c *swaplock.Change) (string, error) {
	version, err := s.swap(ctx, key, c)
	if lost(err) {
		return "", nil
	}
	return version, s.failed(ctx, err, "write the line of", key, true)
}

func (s *store) swap(ctx context.Context, key string, c *swaplock.Change) (string, error) {
	v := readVersion(c.If)
	if err := s.tryConditions(ctx); err != nil || !c.Before.IsZero() && !s.now().Before(c.Before) {
		return "", err
	}
	if ref := v.of(string(v.Holder)); ref != nil && !c.Ended.IsZero() {
		if ended, err := s.end(ctx, &v, ref); !ended || err != nil {
			return "", err
		}
	}
	d := v.next(key, c)
	for _, l := range c.Lend {
		if d.of(l.ID) != nil { // a new object would be without a renewal that is under way
			if alive, err := s.renew(ctx, l); !alive || err != nil {
				return "", err
			}
			continue
		}
		ref := leaseRef{ID: text(l.ID), Lease: rand.Text()}
		d.Leases = append(d.Leases, ref)
		err := s.writeLease(ctx, ref.Lease, "", lease{Key: d.Key, ID: ref.ID, TTL: driverutil.Duration(l.TTL)})
		if err != nil {
			return "", err
		}
	}
	o, err := s.put(ctx, s.lineName(key), v.ETag, d.body())
	if conflict(err) {
		o, err = s.settle(ctx, key, v.Nonce, d.Nonce, err)
	}
	d.ETag = o.ETag
	return d.version(), err
}

// settle finds whether a PUT took effect of which the server says only that another request was under way.
func (s *store) settle(ctx context.Context, key, before, nonce string, unknown error) (Object, error) {
	d, o, err := s.document(ctx, key)
	seen := append(d.Past, d.Nonce)
	switch {
	case err != nil:
	case d.Nonce == nonce:
		return o, nil
	case slices.Contains(seen, nonce):
		return Object{ETag: `"` + nonce + `"`}, nil // of a version that has been replaced
	case slices.Contains(seen, before), before == "" && len(d.Past) < pastMost:
		return o, errLost
	}
	return o, unknown
}

// Forget does nothing: see Clean-up in the documentation of this package.
func (s *store) Forget(context.Context, int64) ([]string, error) { return nil, nil }

// List costs one request for a thousand keys, and what Read costs for each key with a line.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[swaplock.Keyed, error] {
	return func(yield func(swaplock.Keyed, error) bool) {
		begins := escape(prefix)
		begins = s.o.Prefix + "line/" + begins[:min(len(begins), longestName)]
		for after := ""; ; {
			objects, err := s.client.List(ctx, begins, after)
			for i := 0; err == nil && i < len(objects); i++ {
				var d document
				var st swaplock.State
				if after = objects[i].Name; objects[i].Size >= busySize {
					d, st, err = s.read(ctx, after)
				}
				if err == nil && len(d.Line) > 0 && strings.HasPrefix(string(d.Key), prefix) &&
					!yield(swaplock.Keyed{Key: string(d.Key), State: st}, nil) {
					return
				}
			}
			if err != nil {
				yield(swaplock.Keyed{}, s.failed(ctx, err, "list the lines that begin with", prefix, false))
			}
			if err != nil || len(objects) == 0 {
				return
			}
		}
	}
}

// Watch polls.
func (s *store) Watch(
	ctx context.Context, waiting func() map[string]string, hear func(key string, news []swaplock.News),
) error {
	hear("", nil)
	tick := time.NewTicker(s.o.Poll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		known := waiting()
		keys := slices.Collect(maps.Keys(known))
		_ = driverutil.Each(len(keys), atOnce, func(i int) error {
			o, err := s.get(ctx, s.lineName(keys[i]))
			if err == nil && o.ETag != readVersion(known[keys[i]]).ETag {
				hear(keys[i], nil)
			}
			return err // the next poll is near
		})
	}
}

// atOnce is how many requests of one call are under way.
const atOnce = 16
