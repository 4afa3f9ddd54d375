package bench

import (
	"context"
	"time"

	"github.com/redis/rueidis"
)

// rueidisRaw is the floor through rueidis, which sends what many goroutines want
// over a few connections without waiting for the answers.
type rueidisRaw struct {
	client  rueidis.Client
	compare *rueidis.Lua
	ttl     time.Duration
}

func openRueidis(e Env) (Locker, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{e.Store}})
	if err != nil {
		return nil, err
	}
	return &rueidisRaw{client, rueidis.NewLuaScript(compareAndDelete), e.TTL}, nil
}

func (l *rueidisRaw) Do(ctx context.Context, key string, inside func(int64)) error {
	set := l.client.B().Set().Key(key).Value(rawValue).Nx().PxMilliseconds(l.ttl.Milliseconds()).Build()
	if err := l.client.Do(ctx, set).Error(); err != nil {
		if rueidis.IsRedisNil(err) {
			return errTaken
		}
		return err
	}
	inside(0)
	return l.compare.Exec(context.Background(), l.client, []string{key}, []string{rawValue}).Error()
}

func (l *rueidisRaw) Hold(context.Context, string) (Held, error) { return nil, errNever }

func (l *rueidisRaw) Close() error {
	l.client.Close()
	return nil
}
