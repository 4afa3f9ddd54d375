package natslock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/escape"
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
	store *store
}

// store is a swaplock.Store in a bucket.
type store struct {
	js       jetstream.JetStream
	name     string // of the bucket
	replicas int
	api      string // what the subjects of requests begin with
	subjects string // what the subjects of keys begin with
	puts     string // and with it the subjects that are published to, in another domain
	invalid  error  // what is wrong with the arguments of New

	mu   sync.Mutex
	sent time.Time // when the server was last asked for the time,
	time time.Time // and what it has answered
}

var (
	_      swaplock.Messenger = (*store)(nil)
	bucket                    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	names                     = escape.NewTable('=', func(c byte) bool {
		return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '_' || c == '-' || c == '/'
	})
)

// New returns a Backend that keeps its locks in JetStream, through a connection that stays the caller's to
// close. New sends no request: bad arguments are the error of Open and of each call.
func New(js jetstream.JetStream, o *Options) *Backend {
	o = cmp.Or(o, &Options{})
	s := &store{js: js, name: cmp.Or(o.Bucket, DefaultBucket), replicas: o.Replicas, api: jetstream.DefaultAPIPrefix}
	switch {
	case js == nil:
		s.invalid = errors.New("nats: JetStream is not enabled")
	case !bucket.MatchString(s.name):
		s.invalid = fmt.Errorf("nats: %.80q is not the name of a bucket: use 1 to 64 letters, digits, _ and -", s.name)
	case o.Replicas < 0 || o.Replicas > 5:
		s.invalid = fmt.Errorf("nats: a bucket has 1 to 5 replicas, not %d", o.Replicas)
	default:
		if at := js.Options(); at.Domain != "" {
			s.api = "$JS." + at.Domain + ".API."
			s.puts = s.api
		} else if at.APIPrefix != "" {
			s.api = at.APIPrefix
		}
	}
	s.subjects = "$KV." + s.name + "."
	return &Backend{swaplock.New(s), s}
}

// Open takes the Backend over for one Client, and says what is wrong with the arguments of New.
func (b *Backend) Open() error { return b.Take(b.store.invalid) }

// Traits say where the locks are.
func (s *store) Traits() swaplock.Traits { return swaplock.Traits{Name: "nats", Namespace: s.name} }

// latest is at or after the server's clock, and later by the time of a request at most.
func (s *store) latest(ctx context.Context) (time.Time, error) {
	s.mu.Lock()
	since, at := time.Since(s.sent), s.time
	s.mu.Unlock()
	if since < 10*time.Second {
		return at.Add(since), nil
	}
	_, now, err := s.list(ctx, "none")
	return now, err
}

// renewal is the value of a lease. The lease ends TTL after the server's timestamp, or has ended for good.
type renewal struct {
	TTL  driverutil.Duration `json:"ttl,omitempty"`
	Dead bool                `json:"dead,omitempty"`
}

func unescape(s string) string {
	text, _ := names.Unescape(s)
	return text
}
