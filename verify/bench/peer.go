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
	Store string        // of the case: host:port, or what database/sql takes
	Nodes []string      // of a quorum: host:port
	Dir   string        // for files; the same for all processes of a run
	TTL   time.Duration // of every lease

	Process int64 // of those that contend, from 0
}

// Locker is one library, opened. Do and Hold may be called from many goroutines
// at once.
type Locker interface {
	// Do waits for the lock of key, calls inside under it and unlocks, as a user
	// of the library would: the adapter adds no allocation. token is 0 if the
	// library has none. When ctx ends while it waits, Do returns an error; of a library
	// that cannot do that it returns when the lock was its own for a moment.
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
	// Parts are the parts of cases in which it takes part; see the tables.
	Parts []string
	// Sizes bound the parts that are named in it, if the library cannot do more or one
	// setting more of it tells nothing.
	Sizes map[string][]int
	// Direct are the Redis commands that it sends outside of scripts. None of them
	// is called by its scripts too.
	Direct []string
	// Local is true for a library that asks no server.
	Local bool
	Open  func(Env) (Locker, error)
}

// Names that ratios are made with.
const (
	floor        = "raw go-redis" // the least that a lock on Redis costs through the client that most use
	floorAuto    = "raw go-redis, autopipelined"
	floorRueidis = "raw rueidis"
	fairPeer     = "rueidislock, 1 key"  // the quickest of the libraries that are nearly fair
	readme       = "rueidislock, README" // the setting that its README recommends
	ours         = "fencelock"
	strict       = "fencelock, HandOff 1"
	oursMemory   = "fencelock, memory"
	oursSQLite   = "fencelock, SQLite"
	bsm          = "bsm/redislock"
	redsyncName  = "redsync"
	quorumFloor  = "two PINGs of a majority"
)

// sides are who takes part on a store that is no Redis: the floor, the library that
// people use there, and ours.
type sides struct {
	floor, peer, ours string
	openFloor         func(Env) (Locker, error)
	openPeer          func(Env) (Locker, error)
	openOurs          func(handOff int) func(Env) (Locker, error)
}

// stores are the other ones.
var stores = map[string]sides{
	onEtcd: {"put and delete", "etcd/concurrency", "fencelock on etcd",
		openEtcdFloor, openEtcdConcurrency, openEtcdOurs},
	onZooKeeper: {"create and delete", "zk.Lock", "fencelock on ZooKeeper",
		openZooKeeperFloor, openZooKeeperLock, openZooKeeperOurs},
	onPostgres: {"two updates (PostgreSQL)", "pg_advisory_lock", "fencelock on PostgreSQL",
		openSQLFloor("pgx"), openPostgresAdvisory, openPostgresOurs},
	onMariaDB: {"two updates (MariaDB)", "GET_LOCK", "fencelock on MariaDB",
		openSQLFloor("mysql"), openMariaDBGetLock, openMariaDBOurs},
}

// storePart is the name of a part of the case of a store other than Redis.
func storePart(store, part string) string { return store + " " + part }

// Peers returns all libraries, the floors first.
func Peers() []Peer {
	var (
		floors = []string{"free", "keys"} // they do not wait
		every  = []string{"free", "keys", "hot", "stranger", "processes", "held"}
		waits  = []string{"hot", "processes"}
		calm   = []string{"free", "keys", "held"}
		// The slow ones take part in the middle.
		middle = map[string][]int{"hot": {64}, "held": {10000}}
		few    = map[string][]int{"held": {10000}}

		subscribes = []string{"subscribe"}
		redlock    = []string{"redlock free", "redlock keys", "redlock hot"}
	)
	all := []Peer{
		{Name: floor, Parts: floors, Direct: []string{"set"}, Open: openGoRedis},
		{Name: floorAuto, Parts: []string{"keys"}, Direct: []string{"set"}, Open: openGoRedisPipelined},
		{Name: floorRueidis, Parts: floors, Direct: []string{"set"}, Open: openRueidis},

		{Name: ours, Parts: append(every, "line"), Direct: subscribes, Open: openFencelock(0)},
		{Name: strict, Parts: append(waits, "stranger"), Direct: subscribes, Open: openFencelock(1)},
		{Name: oursMemory, Parts: []string{"free", "keys", "hot"}, Local: true, Open: openMemory},
		{Name: oursSQLite, Parts: []string{"free", "keys", "hot", "processes"},
			Sizes: map[string][]int{"hot": {64}, "keys": {64}}, Local: true, Open: openSQLite},

		{Name: bsm, Parts: calm, Sizes: few, Open: openRedislock(0)},
		{Name: bsm + ", every 5 ms", Parts: append(waits, "stranger"),
			Open: openRedislock(5 * time.Millisecond)},
		{Name: bsm + ", every 100 ms", Parts: waits, Sizes: middle, Open: openRedislock(100 * time.Millisecond)},
		{Name: bsm + ", autopipelined", Parts: []string{"keys"}, Open: openRedislockPipelined},
		{Name: redsyncName, Parts: append(calm, waits...), Sizes: middle, Direct: []string{"set"},
			Open: openRedsync(0)},
		{Name: redsyncName + ", every 5 ms", Parts: append(waits, "stranger"), Direct: []string{"set"},
			Open: openRedsync(5 * time.Millisecond)},
		{Name: redsyncName + ", autopipelined", Parts: []string{"keys"}, Direct: []string{"set"},
			Open: openRedsyncPipelined},
		{Name: fairPeer, Parts: append(every, "line"),
			Sizes: map[string][]int{"line": {10, 100}, "held": {1000, 10000}}, Open: openRueidislock(false)},
		{Name: readme, Parts: every, Open: openRueidislock(true)},

		{Name: quorumFloor, Parts: []string{"redlock free"}, Direct: []string{"ping"}, Open: openPings},
		{Name: "fencelock on a quorum", Parts: redlock, Direct: subscribes, Open: openQuorum},
		{Name: "redsync on a quorum", Parts: redlock, Direct: []string{"set"}, Open: openRedsyncQuorum},
	}
	for _, store := range storeOrder {
		s := stores[store]
		parts := func(names ...string) (all []string) {
			for _, n := range names {
				all = append(all, storePart(store, n))
			}
			return all
		}
		all = append(all,
			Peer{Name: s.floor, Parts: parts("free", "keys"), Open: s.openFloor},
			Peer{Name: s.ours, Parts: parts("free", "keys", "hot", "processes"), Open: s.openOurs(0)},
			Peer{Name: s.ours + ", HandOff 1", Parts: parts("processes"), Open: s.openOurs(1)},
			Peer{Name: s.peer, Parts: parts("free", "keys", "hot", "processes"), Open: s.openPeer})
	}
	return all
}

func findPeer(name string) (Peer, error) {
	for _, p := range Peers() {
		if p.Name == name {
			return p, nil
		}
	}
	return Peer{}, fmt.Errorf("no library is called %q", name)
}

// participants returns those who take part in a part of a case, and whose names are wanted.
func participants(part string, size int, wanted []string) []Peer {
	var chosen []Peer
	for _, p := range Peers() {
		asked := len(wanted) == 0 || slices.ContainsFunc(wanted, func(w string) bool {
			return p.Name == w || strings.HasSuffix(w, "*") && strings.HasPrefix(p.Name, strings.TrimSuffix(w, "*"))
		})
		sizes := p.Sizes[part]
		if asked && slices.Contains(p.Parts, part) && (len(sizes) == 0 || slices.Contains(sizes, size)) {
			chosen = append(chosen, p)
		}
	}
	return chosen
}
