package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Env is where the libraries keep their locks.
type Env struct {
	Redis string        // host:port
	Dir   string        // for files; the same for all processes of a run
	TTL   time.Duration // of every lease
}

// Locker is one library, opened. Do and Hold may be called from many goroutines
// at once.
type Locker interface {
	// Do waits for the lock of key, calls inside under it and unlocks, as a user
	// of the library would: the adapter adds no allocation. token is 0 if the
	// library has none. When ctx ends while it waits, Do returns an error.
	Do(ctx context.Context, key string, inside func(token int64)) error
	// Hold takes the lock of key and has it renewed until it is released.
	Hold(ctx context.Context, key string) (Held, error)
	Close() error
}

// Held is a lock that is held and renewed. Release reports whether it was lost.
type Held interface {
	Release(ctx context.Context) error
}

// Peer is one library in one setting.
type Peer struct {
	Name string
	// Cases are those in which it takes part.
	Cases []string
	// Direct are the Redis commands that it sends outside of scripts. None of them
	// is called by its scripts too.
	Direct []string
	// Redis is false for a library that keeps its locks elsewhere.
	Redis bool
	Open  func(Env) (Locker, error)
}

// Names that ratios are made with.
const (
	floor    = "raw go-redis"       // the least that a lock on Redis costs through the client that most use
	fairPeer = "rueidislock, 1 key" // the quickest of the libraries that are nearly fair
	ours     = "fencelock"
	strict   = "fencelock, HandOff 1"
)

var (
	// Floors do not wait.
	floors    = []string{"free", "keys"}
	everyCase = []string{"free", "keys", "hot", "processes", "held"}
	contended = []string{"hot", "processes"}
	calm      = []string{"free", "keys", "held"}
)

// Peers returns all libraries, the floors first.
func Peers() []Peer {
	return []Peer{
		{Name: floor, Cases: floors, Direct: []string{"set"}, Redis: true, Open: openGoRedis},
		{Name: "raw go-redis, autopipelined", Cases: []string{"keys"}, Direct: []string{"set"}, Redis: true, Open: openGoRedisPipelined},
		{Name: "raw rueidis", Cases: floors, Direct: []string{"set"}, Redis: true, Open: openRueidis},

		{Name: ours, Cases: everyCase, Direct: []string{"subscribe"}, Redis: true, Open: openFencelock(0)},
		{Name: strict, Cases: contended, Direct: []string{"subscribe"}, Redis: true, Open: openFencelock(1)},
		{Name: "fencelock, memory", Cases: []string{"free", "keys", "hot"}, Open: openMemory},
		{Name: "fencelock, SQLite", Cases: []string{"free", "keys", "hot", "processes"}, Open: openSQLite},

		{Name: "bsm/redislock", Cases: calm, Redis: true, Open: openRedislock(0)},
		{Name: "bsm/redislock, every 5 ms", Cases: contended, Redis: true, Open: openRedislock(5 * time.Millisecond)},
		{Name: "bsm/redislock, every 100 ms", Cases: contended, Redis: true, Open: openRedislock(100 * time.Millisecond)},
		{Name: "redsync", Cases: everyCase, Direct: []string{"set"}, Redis: true, Open: openRedsync(0)},
		{Name: "redsync, every 5 ms", Cases: contended, Direct: []string{"set"}, Redis: true, Open: openRedsync(5 * time.Millisecond)},
		{Name: fairPeer, Cases: everyCase, Redis: true, Open: openRueidislock(false)},
		{Name: "rueidislock, README", Cases: everyCase, Redis: true, Open: openRueidislock(true)},
	}
}

func findPeer(name string) (Peer, error) {
	for _, p := range Peers() {
		if p.Name == name {
			return p, nil
		}
	}
	return Peer{}, fmt.Errorf("no library is called %q", name)
}

// taking returns those who take part in a case, whose names hold one of the
// wanted texts; and always the one that ratios are made with.
func taking(part string, wanted []string, base string) []Peer {
	var chosen []Peer
	for _, p := range Peers() {
		asked := len(wanted) == 0 || p.Name == base || slices.ContainsFunc(wanted, func(w string) bool {
			return p.Name == w || strings.HasSuffix(w, "*") && strings.HasPrefix(p.Name, strings.TrimSuffix(w, "*"))
		})
		if asked && slices.Contains(p.Cases, part) {
			chosen = append(chosen, p)
		}
	}
	return chosen
}
