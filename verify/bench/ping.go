package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	process "github.com/fencelock/fencelock/internal/worker"
	"github.com/redis/go-redis/v9"
)

// pingEvery is how often the server is asked while others keep it busy.
const pingEvery = time.Millisecond

// ownKeysAndPings is ownKeys, beside a process that sends PING all the time: so long is a request
// of somebody else held up.
func (b *Bench) ownKeysAndPings(ctx context.Context, p part, peer Peer, l []Locker) (Values, error) {
	ctx, cancel := context.WithTimeout(ctx, contestTimeout)
	defer cancel()
	c, err := startChild(ctx, job{Pings: true, Env: b.env()})
	if err == nil {
		err = c.receive(new(string))
	}
	if err != nil {
		return nil, err
	}
	v, err := b.ownKeys(ctx, p, peer, l)
	if err != nil {
		return nil, err
	}
	if err := c.proceed(); err != nil {
		return nil, err
	}
	var took []time.Duration
	if err := c.receive(&took); err != nil {
		return nil, err
	}
	slices.Sort(took)
	v["ping_p50_us"], v["ping_p99_us"] = percentile(took, 50)/1e3, percentile(took, 99)/1e3
	return v, c.cmd.Wait()
}

// ping sends PING until its parent has it proceed, and reports how long each took.
func ping(e Env) error {
	client := redis.NewClient(&redis.Options{Addr: e.Addr})
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("the first PING: %w", err)
	}
	if err := report("ready"); err != nil {
		return err
	}
	go func() {
		defer cancel()
		process.Told()
	}()
	var took []time.Duration
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		begun := time.Now()
		if err := client.Ping(ctx).Err(); err == nil {
			took = append(took, time.Since(begun))
		} else if ctx.Err() == nil {
			return fmt.Errorf("PING: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return report(took)
}
