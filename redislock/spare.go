package redislock

import (
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// spareConns is how many connections a spare client has at most.
const spareConns = 2

// spare returns a client with connections of its own and the options of server: for server, while all those of its pool
// are in use, because commands of the program that block, as BLPOP does, and transactions may keep them for longer than
// a lease; or for the node at another address, which gets a hash slot.
func (t *transport) spare(server *redis.Client, addr string) *redis.Client {
	t.mu.Lock()
	defer t.mu.Unlock()
	spare := t.spares[addr]
	if spare == nil {
		o := *server.Options()
		o.Addr = addr
		// go-redis writes into what this points to while a connection of server begins, and NewClient reads it.
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = spareConns, 0, 0, 0
		spare = redis.NewClient(&o)
		t.spares[addr] = spare
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
