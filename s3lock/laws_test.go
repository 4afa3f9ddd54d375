package s3lock_test

import (
	"context"
	"crypto/md5"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/s3lock"
)

// late is how much later than its lease a claim ends: two seconds are the grace, and one is the clock's.
const late = 4 * time.Second

func views(client s3lock.Client) drivertest.Opener {
	return func(t *testing.T) driver.Backend {
		b := s3lock.New(client, nil)
		t.Cleanup(func() { b.Close() })
		return b
	}
}

func TestLawsInVirtualTime(t *testing.T) {
	drivertest.Run(t, views(newBucket()), drivertest.InBubbles(), drivertest.ExpiryLag(late), drivertest.Polls(),
		drivertest.Topics("Grant", "Token", "Lease", "Expiry", "Leave", "Reserve", "Break", "Detach", "Named", "ReusedID",
			"Mark", "Linger", "Kind", "Wake", "Key", "Look", "Context", "Close", "Concurrent")) // Limit takes seconds
}

func TestAnswersAreThoseOfTheModelInVirtualTime(t *testing.T) { playModel(t, steps.Seeds(8)...) }

// playModel plays on a server whose clock is exact, as the model's is.
func playModel(t *testing.T, seeds ...uint64) {
	b := newBucket()
	b.exact = true
	drivertest.ModelInBubbles(t, func(t *testing.T) driver.Backend {
		v := s3lock.NewExact(b)
		t.Cleanup(func() { v.Close() })
		return v
	}, seeds...)
}

// bucket is a bucket in memory, in the time of a bubble. Its clock counts whole seconds, and its ETags are hashes of
// the content.
type bucket struct {
	mu      sync.Mutex
	objects map[string]s3lock.Object

	exact   bool                                    // the clock
	ignores bool                                    // conditions
	early   bool                                    // it compares the ETag some time before it writes
	before  func(verb, name string) error           // each request
	after   func(verb, name string) (instead error) // each request that has been done
	skew    func() time.Duration                    // of the server that serves a request
}

func newBucket() *bucket { return &bucket{objects: map[string]s3lock.Object{}} }

func (b *bucket) now() time.Time {
	now := time.Now()
	if b.skew != nil {
		now = now.Add(b.skew())
	}
	if b.exact {
		return now
	}
	return now.Truncate(time.Second).UTC()
}

func (b *bucket) begin(verb, name string) error {
	if b.before != nil {
		return b.before(verb, name)
	}
	return nil
}

func (b *bucket) end(ctx context.Context, verb, name string) error {
	if b.after != nil {
		if err := b.after(verb, name); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (b *bucket) Get(ctx context.Context, name string) (s3lock.Object, error) {
	if err := b.begin("GET", name); err != nil {
		return s3lock.Object{}, err
	}
	b.mu.Lock()
	o := b.objects[name]
	o.Date = b.now()
	b.mu.Unlock()
	return o, b.end(ctx, "GET", name)
}

func (b *bucket) Put(ctx context.Context, name, etag string, body []byte) (s3lock.Object, error) {
	if err := b.begin("PUT", name); err != nil {
		return s3lock.Object{}, err
	}
	if ctx.Err() != nil {
		return s3lock.Object{}, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if was := b.objects[name]; was.ETag != etag && !b.ignores {
		return s3lock.Object{}, &s3lock.StatusError{Status: 412, Code: "PreconditionFailed"}
	}
	if b.early { // and another request comes between
		b.mu.Unlock()
		time.Sleep(time.Millisecond)
		b.mu.Lock()
	}
	o := s3lock.Object{ETag: fmt.Sprintf("%q", fmt.Sprintf("%x", md5.Sum(body))), Body: slices.Clone(body), Modified: b.now()}
	b.objects[name] = o
	return s3lock.Object{ETag: o.ETag, Date: b.now()}, b.end(ctx, "PUT", name)
}

func (b *bucket) List(ctx context.Context, prefix, after string) (all []s3lock.Object, err error) {
	if err := b.begin("LIST", prefix); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(b.objects)) {
		if strings.HasPrefix(name, prefix) && name > after && len(all) < 3 {
			all = append(all, s3lock.Object{Name: name, Size: int64(len(b.objects[name].Body))})
		}
	}
	return all, b.end(ctx, "LIST", prefix)
}
