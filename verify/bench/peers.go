package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/storeurl"
)

// Peer is one library in one setting.
type Peer struct {
	Name string
	// Parts are the parts of cases in which it takes part, with all their sizes; or only
	// with the size behind a slash, where more of them tell nothing.
	Parts []string
	// Direct are the Redis commands that it sends outside of scripts. None of them
	// is called by its scripts too.
	Direct []string
	Local  bool // it asks no server
	Floor  bool // it is no lock that one could use
	Open   opener
}

// Names that ratios are made with.
const (
	floor        = "raw go-redis" // the least that a lock on Redis costs through the client that most use
	floorAuto    = "raw go-redis, autopipelined"
	floorRueidis = "raw rueidis"
	floorBaton   = "raw go-redis, BLPOP" // the least that a hand-over costs
	fairPeer     = "rueidislock, 1 key"  // the quickest of the libraries that are nearly fair
	readme       = "rueidislock, README" // the setting that its README recommends
	ours         = "fencelock"
	strict       = "fencelock, HandOff 1"
	oursMemory   = "fencelock, memory"
	served       = "fencelock serve"
	servedFloor  = "raw go-redis behind net/http"
	servedBaton  = "raw BLPOP behind net/http"
	servedWait   = "fencelock serve, wait" // acquire waits, so that a claim is renewed when it is granted
	bsm          = "bsm/redislock"
	redsyncName  = "redsync"
	quorumFloor  = "two PINGs of a majority"
)

// sides are who takes part on a store that is no Redis: the floor, the library that
// people use there, and ours.
type sides struct {
	store, floor, peer, ours string
	openFloor, openPeer      opener
}

// stores are the stores other than Redis, in their order.
var stores = []sides{
	{onEtcd, "put and delete", "etcd/concurrency", "fencelock on etcd",
		openEtcdFloor, openEtcdConcurrency},
	{onZooKeeper, "create and delete", "zk.Lock", "fencelock on ZooKeeper",
		openZooKeeperFloor, openZooKeeperLock},
	{onPostgres, "two updates (PostgreSQL)", "pg_advisory_lock", "fencelock on PostgreSQL",
		openSQLFloor("pgx", "UPDATE floor SET v = v + 1 WHERE k = $1"), openAdvisory("pgx",
			"SELECT pg_advisory_lock(hashtextextended($1, 0))", "SELECT pg_advisory_unlock(hashtextextended($1, 0))")},
	{onMariaDB, "two updates (MariaDB)", "GET_LOCK", "fencelock on MariaDB",
		openSQLFloor("mysql", "UPDATE floor SET v = v + 1 WHERE k = ?"),
		openAdvisory("mysql", "SELECT GET_LOCK(?, 1000)", "SELECT RELEASE_LOCK(?)")},
}

// Peers returns all libraries, the floors first.
func Peers() []Peer {
	var (
		few    = []string{"keys few idle", "keys few awake"}
		floors = []string{"free", "keys"} // they do not wait
		every  = []string{"free", "keys", "hot", "stranger", "processes", "held"}
		polls  = []string{"hot", "processes", "stranger"}
		calm   = []string{"free", "keys", "held/10000"}
		slow   = []string{"hot/64", "processes"}

		set        = []string{"set"}
		subscribes = []string{"subscribe"}
		baton      = []string{"blpop", "lpush"}
		redlock    = []string{"redlock free", "redlock keys", "redlock hot"}
	)
	const often = 5 * time.Millisecond
	all := []Peer{
		{Name: floor, Floor: true, Parts: slices.Concat(floors, few, []string{"keys pings"}), Direct: set,
			Open: openGoRedis(false)},
		{Name: floorAuto, Floor: true, Parts: []string{"keys", "keys pings"}, Direct: set, Open: openGoRedis(true)},
		{Name: floorRueidis, Floor: true, Parts: floors, Direct: set, Open: openRueidis},

		{Name: ours, Direct: subscribes, Open: openOurs(onRedisServer, 0),
			Parts: slices.Concat(every, few, []string{"keys pings", "line",
				"service free", "service hand-over"})},
		{Name: strict, Parts: polls, Direct: subscribes, Open: openOurs(onRedisServer, 1)},
		{Name: oursMemory, Parts: []string{"free", "keys", "hot"}, Local: true, Open: openOurs(at(inMemory), 0)},
		{Name: "fencelock, SQLite", Parts: []string{"free", "keys/64", "hot/64", "processes"}, Local: true,
			Open: openOurs(at(onSQLite), 0)},

		{Name: servedFloor, Floor: true, Parts: []string{"service free"}, Direct: set, Open: openServedFloor(floor)},
		{Name: floorBaton, Floor: true, Parts: []string{"service hand-over"}, Direct: baton, Open: openBaton},
		{Name: servedBaton, Floor: true, Parts: []string{"service hand-over"}, Direct: baton,
			Open: openServedFloor(floorBaton)},
		{
			Name: served, Parts: []string{"service free", "service waiting", "service slowly"}, Direct: subscribes,
			Open: openServe(""),
		},
		{Name: servedWait, Parts: []string{"service free", "service hand-over"}, Direct: subscribes,
			Open: openServe(`,"wait":"1m"`)},

		{Name: bsm, Parts: slices.Concat(calm, few), Open: openBsm(0, false)},
		{Name: bsm + ", every 5 ms", Parts: polls, Open: openBsm(often, false)},
		{Name: bsm + ", every 100 ms", Parts: slow, Open: openBsm(100*time.Millisecond, false)},
		{Name: bsm + ", autopipelined", Parts: append(few, "keys"), Open: openBsm(0, true)},
		{Name: redsyncName, Parts: slices.Concat(calm, slow, few), Direct: set,
			Open: openRedsync(0, false)},
		{Name: redsyncName + ", every 5 ms", Parts: polls, Direct: set, Open: openRedsync(often, false)},
		{Name: redsyncName + ", autopipelined", Parts: []string{"keys", "keys pings"}, Direct: set,
			Open: openRedsync(0, true)},
		{Name: fairPeer, Open: openRueidislock(false), Parts: append(few, "free", "keys", "hot", "stranger",
			"processes", "keys pings", "line/10", "line/100", "held/1000", "held/10000")},
		{Name: readme, Parts: every, Open: openRueidislock(true)},

		{Name: quorumFloor, Floor: true, Parts: []string{"redlock free"}, Direct: []string{"ping"}, Open: openPings},
		{Name: "fencelock on a quorum", Parts: redlock, Direct: subscribes, Open: openOurs(onQuorum, 0)},
		{Name: "redsync on a quorum", Parts: redlock, Direct: set, Open: openRedsyncQuorum},
	}
	for _, s := range stores {
		all = append(all, s.peers()...)
	}
	return all
}

// peers are those who take part on a store other than Redis.
func (s sides) peers() []Peer {
	free, keys, hot, processes := s.store+" free", s.store+" keys", s.store+" hot", s.store+" processes"
	return []Peer{
		{Name: s.floor, Floor: true, Parts: []string{free, keys}, Open: s.openFloor},
		{Name: s.ours, Parts: []string{free, keys, hot, processes}, Open: openOurs(at(onItsURL), 0)},
		{Name: s.ours + ", HandOff 1", Parts: []string{processes}, Open: openOurs(at(onItsURL), 1)},
		{Name: s.peer, Parts: []string{free, keys, hot, processes}, Open: s.openPeer},
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

// participants returns those who take part in a part of a case, and whose names are wanted.
func participants(part string, size int, wanted []string) []Peer {
	var chosen []Peer
	for _, p := range Peers() {
		asked := len(wanted) == 0 || slices.ContainsFunc(wanted, func(w string) bool {
			prefix, star := strings.CutSuffix(w, "*")
			return p.Name == w || star && strings.HasPrefix(p.Name, prefix)
		})
		sized := fmt.Sprintf("%s/%d", part, size)
		if asked && (slices.Contains(p.Parts, part) || slices.Contains(p.Parts, sized)) {
			chosen = append(chosen, p)
		}
	}
	return chosen
}

// isOurs reports whether the library is fencelock, on any store.
func isOurs(peer string) bool { return strings.HasPrefix(peer, ours) }

// store is a backend of ours, and what closes the clients below it.
type store struct {
	driver.Backend
	close func() error
}

// openOurs opens fencelock on a backend. handOff is Options.HandOff.
func openOurs(dial func(Env) (store, error), handOff int) opener {
	return func(e Env) (Locker, error) {
		s, err := dial(e)
		if err != nil {
			return nil, err
		}
		client, err := fencelock.New(s.Backend, &fencelock.Options{TTL: e.TTL, HandOff: handOff})
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		return &library[*fencelock.Lease]{
			lock: func(ctx context.Context, key string) (*fencelock.Lease, error) {
				return client.Lock(ctx, key)
			},
			unlock: func(ctx context.Context, _ string, l *fencelock.Lease) error { return l.Release(ctx) },
			token:  func(l *fencelock.Lease) int64 { return int64(l.Token()) },
			close:  func() error { return errors.Join(client.Close(), s.close()) },
		}, nil
	}
}

// at is a backend on the store that a URL names.
func at(url func(Env) string) func(Env) (store, error) {
	return func(e Env) (store, error) {
		u, err := storeurl.Parse(url(e), storeurl.Source{Name: "the benchmark"})
		if err != nil {
			return store{}, err
		}
		s, err := u.Open(context.Background(), storeurl.Config{MaxConns: poolSize, Prepare: true})
		if err != nil {
			return store{}, err
		}
		return store{s.Backend, func() error { s.Close(); return nil }}, nil
	}
}

func inMemory(Env) string   { return "memory:" }
func onSQLite(e Env) string { return "sqlite://" + filepath.Join(e.Dir, "locks.db") }
func onItsURL(e Env) string { return e.URL }

// onRedisServer uses go-redis with the settings that all other libraries on it have.
func onRedisServer(e Env) (store, error) {
	rdb, err := dialGoRedis(false)(e)
	return store{redislock.New(rdb.UniversalClient, nil), rdb.close}, err
}

func onQuorum(e Env) (store, error) {
	nodes, err := dialNodes(e)
	var members []driver.Backend
	for _, rdb := range nodes {
		members = append(members, redislock.New(rdb, &redislock.Options{Member: &ballot.Membership{}}))
	}
	return store{quorumlock.New(members, nil), nodes.close}, err
}

// initialiseQuorum says that the nodes are new, so that they need not sit out a lease.
func initialiseQuorum(ctx context.Context, e Env) error {
	s, err := onQuorum(e)
	return errors.Join(err, s.Backend.(*quorumlock.Backend).Initialise(ctx), s.Backend.Close(), s.close())
}
