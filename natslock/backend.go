package natslock

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fencelock/fencelock/internal/escape"
	"github.com/fencelock/fencelock/internal/swapkv"
	"github.com/fencelock/fencelock/swaplock"
)

// DefaultBucket is where locks are kept if Options do not say otherwise.
const DefaultBucket = "fencelock"

// Options change how locks are kept. Nil and the zero value are ready for use.
type Options struct {
	// Bucket is the name of the key-value bucket, of letters, digits, "_" and "-"; DefaultBucket if empty. All
	// programs that share locks use the same one, for nothing else. A bucket that is there is used as it is.
	Bucket string
	// Replicas of a bucket that is made: 1, 3 or 5. If it is 0, three in a cluster, and one on a server of its own.
	Replicas int
}

// Backend keeps lines of claims in a bucket. Its methods may be called from many goroutines at once.
type Backend struct {
	*swaplock.Backend
	bucket *bucket
}

var (
	bucketName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	names      = escape.NewTable('=', func(c byte) bool {
		return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '_' || c == '-' || c == '/'
	})
)

// New returns a Backend that keeps its locks in JetStream, through a connection that stays the caller's to
// close. New sends no request: bad arguments are the error of Open and of each call.
func New(js jetstream.JetStream, o *Options) *Backend {
	o = cmp.Or(o, &Options{})
	b := &bucket{js: js, name: cmp.Or(o.Bucket, DefaultBucket), replicas: o.Replicas, api: jetstream.DefaultAPIPrefix}
	switch {
	case js == nil:
		b.invalid = errors.New("nats: JetStream is not enabled")
	case !bucketName.MatchString(b.name):
		b.invalid = fmt.Errorf("nats: %.80q is not the name of a bucket: use 1 to 64 letters, digits, _ and -", b.name)
	case o.Replicas < 0 || o.Replicas > 5:
		b.invalid = fmt.Errorf("nats: a bucket has 1 to 5 replicas, not %d", o.Replicas)
	default:
		if at := js.Options(); at.Domain != "" {
			b.api = "$JS." + at.Domain + ".API."
			b.puts = b.api
		} else if at.APIPrefix != "" {
			b.api = at.APIPrefix
		}
	}
	b.subjects = "$KV." + b.name + "."
	return &Backend{swaplock.New(&store{Store: swapkv.New(b), bucket: b}), b}
}

// Open takes the Backend over for one Client, and says what is wrong with the arguments of New.
func (b *Backend) Open() error { return b.Take(b.bucket.invalid) }

// store is the swaplock.Store of a Backend.
type store struct {
	swapkv.Store
	bucket *bucket
	looked atomic.Uint64 // the revision that Forget has looked at last
}

var _ swaplock.Messenger = (*store)(nil)

// Traits say where the locks are.
func (s *store) Traits() swaplock.Traits {
	return swaplock.Traits{Name: "nats", Namespace: s.bucket.name}
}

// Message adds a message.
func (s *store) Message(ctx context.Context, key string, m []byte) (added bool, err error) {
	_, err = s.bucket.publish(ctx, "note."+names.Escape(key)+"."+rand.Text(), m)
	return err == nil, err
}

// Swap swaps, and tells those who Watch. What they do not hear is found by a look.
func (s *store) Swap(ctx context.Context, key string, c *swaplock.Change) (string, error) {
	version, err := s.Store.Swap(ctx, key, c)
	if version != "" && len(c.News) > 0 && len(c.Document) > 0 {
		if text, err := json.Marshal(told{[]byte(key), c.News}); err == nil {
			_ = s.bucket.js.Conn().Publish(s.news(), text)
		}
	}
	return version, err
}

// told is a message to those who Watch.
type told struct {
	Key  []byte          `json:"key"`
	News []swaplock.News `json:"news"`
}

func (s *store) news() string { return "fencelock." + s.bucket.name + ".news" }

// Watch hears of swaps until the connection breaks.
func (s *store) Watch(ctx context.Context, _ func() map[string]string, hear func(string, []swaplock.News)) error {
	if s.bucket.invalid != nil {
		return s.bucket.invalid
	}
	nc := s.bucket.js.Conn()
	status := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(status)
	sub, err := nc.Subscribe(s.news(), func(m *nats.Msg) {
		var t told
		if json.Unmarshal(m.Data, &t) == nil {
			hear(string(t.Key), t.News)
		}
	})
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	flush, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := nc.FlushWithContext(flush); err != nil {
		return err
	}
	hear("", nil)
	select {
	case <-status: // what was told before it was connected again is lost
	case <-ctx.Done():
	}
	return ctx.Err()
}

const (
	// forgetFor is how long one Forget looks, and mostStale how many keys it returns. The next one goes on there.
	forgetFor = 3 * time.Minute
	mostStale = 500
)

// Forget removes what was written before last: idle lines, messages that nobody has done, and leases that had ended by
// then. It looks at all that is so old, and was not removed, by a request for each, in the order of the revisions.
func (s *store) Forget(ctx context.Context, last int64) (stale []string, err error) {
	before, end := time.UnixMicro(last), time.Now().Add(forgetFor)
	for len(stale) < mostStale && time.Now().Before(end) {
		m, err := s.bucket.next(ctx, s.looked.Load())
		if err != nil {
			return stale, err
		}
		if m.Seq == 0 || !m.Time.Before(before) {
			s.looked.Store(0)
			break
		}
		s.looked.Store(m.Seq)
		name := strings.TrimPrefix(m.Subject, s.bucket.subjects)
		var busy, idle bool
		switch kind, _, _ := strings.Cut(name, "."); kind {
		case "line":
			busy, idle = swapkv.IdleLine(m.object(), last)
		case "lease":
			idle = s.IdleLease(m.object(), before)
		case "note":
			idle = true
		}
		if busy {
			stale = append(stale, keyOf(name))
		} else if idle {
			s.bucket.purge(m.Subject, m.Seq)
		}
	}
	return stale, nil
}
