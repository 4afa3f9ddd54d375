package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
)

var (
	bareJoin = bareScript("join")
	barePass = bareScript("pass")
)

// bareLines is the limit of a lock on Redis that has a lease, a token and a line in which
// processes wait to be woken: two scripts that do what these need and nothing else, and a
// message to the process whose turn it is. There are no other kinds of lock, a call that is
// sent twice is done twice, and whoever dies keeps its place until the lock is forgotten.
type bareLines struct {
	rdb     *redis.Client
	channel string // of this process, 16 bytes
	grants  int    // that a place in line is good for, from goroutine to goroutine
	ears    *redis.PubSub
	ctx     context.Context
	end     context.CancelFunc
	reader  sync.WaitGroup
	ids     atomic.Int64
	turns   sync.Map // id -> chan int64, for the token
	lines   sync.Map // key -> *bareLine
}

// spanOfAClaim is how many grants a claim of ours is good for by default.
const spanOfAClaim = fencelock.DefaultHandOff

// bareLine is what the goroutines of one process have of one key.
type bareLine struct {
	queue
	// What follows belongs to whoever is at the front of the queue.
	claim string // the place in line, or ""
	token int64
	left  int // grants
}

func openBareLines(grants int) func(Env) (Locker, error) {
	return func(e Env) (Locker, error) {
		l := &bareLines{rdb: dialGoRedis(e), channel: fmt.Sprintf("line:%011d", e.Process), grants: grants}
		l.ctx, l.end = context.WithCancel(context.Background())
		l.ears = l.rdb.Subscribe(l.ctx, l.channel)
		if _, err := l.ears.Receive(l.ctx); err != nil { // it is subscribed
			return nil, errors.Join(err, l.Close())
		}
		l.reader.Go(l.hear)
		return l, nil
	}
}

// hear gives each token to whom it is for.
func (l *bareLines) hear() {
	for {
		m, err := l.ears.ReceiveMessage(l.ctx)
		if err != nil {
			return
		}
		id, text := m.Payload[:16], m.Payload[16:]
		token, err := strconv.ParseInt(text, 10, 64)
		if turn, ok := l.turns.LoadAndDelete(id); ok && err == nil {
			turn.(chan int64) <- token
		}
	}
}

func (l *bareLines) Do(ctx context.Context, key string, inside func(int64)) error {
	if l.grants == 1 {
		return l.grant(ctx, key, new(bareLine), inside)
	}
	found, ok := l.lines.Load(key)
	if !ok {
		found, _ = l.lines.LoadOrStore(key, new(bareLine))
	}
	b := found.(*bareLine)
	if err := b.enter(ctx); err != nil {
		return err
	}
	defer b.leave()
	return l.grant(ctx, key, b, inside)
}

// grant is the next grant of a place in line, which is taken if there is none, and left if
// this was the last grant or nobody else in the process wants one.
func (l *bareLines) grant(ctx context.Context, key string, b *bareLine, inside func(int64)) error {
	if b.claim == "" {
		if err := l.join(ctx, key, b); err != nil {
			return err
		}
	}
	b.token++
	b.left--
	inside(b.token)
	if b.left > 0 && b.wanted() {
		return nil
	}
	claim := b.claim
	b.claim = ""
	answer, err := barePass.Run(context.Background(), l.rdb, lineKeys(key), claim, lease.Milliseconds()).Text()
	if err == nil && answer != "+" {
		err = errors.New("a lock was lost")
	}
	return err
}

func (l *bareLines) join(ctx context.Context, key string, b *bareLine) error {
	id := fmt.Sprintf("%016d", l.ids.Add(1))
	turn := make(chan int64, 1)
	l.turns.Store(id, turn)
	answer, err := bareJoin.Run(ctx, l.rdb, lineKeys(key), l.channel+id, lease.Milliseconds()).Text()
	if err != nil {
		return err
	}
	if answer != "w" {
		l.turns.Delete(id)
		b.token, err = strconv.ParseInt(answer, 10, 64)
	} else {
		select {
		case b.token = <-turn:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.claim, b.left = l.channel+id, l.grants
	return err
}

func lineKeys(key string) []string {
	record := "line:{" + key + "}"
	return []string{record, record + "q"}
}

func (l *bareLines) Hold(context.Context, string) (Held, error) { return nil, errNever }

func (l *bareLines) Close() error {
	l.end()
	err := l.ears.Close()
	l.reader.Wait()
	return errors.Join(err, l.rdb.Close())
}
