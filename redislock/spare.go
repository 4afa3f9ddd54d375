package redislock

import (
	"github.com/redis/go-redis/v9"
)

// spareConns is how many connections a spare client has at most.
const spareConns = 2

// withRoom returns server, or a spare client of the same server with connections of its own while the
// program has all those of server's pool: commands that block, as BLPOP does, and transactions may keep
// them for longer than a lease. A renewal always looks for that, and other requests do while the last
// look found it, because to look costs every request some time.
func (t *transport) withRoom(server *redis.Client, r *request) *redis.Client {
	if r.script != renewScript && !t.crowded.Load() {
		return server
	}
	full := poolIsFull(server)
	t.crowded.Store(full)
	if !full {
		return server
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	spare := t.spares[server]
	if spare == nil {
		o := *server.Options()
		o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = spareConns, 0, 0, 0
		spare = redis.NewClient(&o)
		t.spares[server] = spare
	}
	return spare
}

// poolIsFull reports whether all connections of a pool are in use.
func poolIsFull(server *redis.Client) bool {
	o, stats := server.Options(), server.PoolStats()
	most := o.PoolSize
	if o.MaxActiveConns > 0 {
		most = min(most, o.MaxActiveConns)
	}
	return stats.IdleConns == 0 && int(stats.TotalConns) >= most
}

// close closes the spare clients.
func (t *transport) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for server, spare := range t.spares {
		_ = spare.Close()
		delete(t.spares, server)
	}
}
