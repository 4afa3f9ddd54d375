// Redlock keeps a lock on three Redis servers that do not know of each other. One of them dies and
// is replaced, and the holder goes on. A second one dies, no majority is left, and the holder is
// told before its lease ends.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/redislock"
)

const (
	job     = "nightly"
	members = 3
	lease   = 3 * time.Second
)

func main() {
	logging.Disable() // servers that cannot be reached are part of the story
	if err := play(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// play tells the story to out.
func play(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	servers, stop, err := start(ctx)
	defer stop()
	if err != nil {
		return err
	}
	quorum, done := open(servers)
	defer done()
	locks, err := fencelock.New(quorum, &fencelock.Options{TTL: lease})
	if err != nil {
		return err
	}
	defer locks.Close()

	_, err = locks.TryLock(ctx, job)
	if !errors.As(err, new(*ballot.QuarantineError)) {
		return fmt.Errorf("servers without init: %w", err)
	}
	fmt.Fprintln(out, "three new servers grant nothing:", err)
	// No lock can be left from before: these servers are new.
	if err := quorum.Initialise(ctx); err != nil {
		return err
	}
	held, err := locks.Lock(ctx, job)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "after init the lock is granted, with token", held.Token())
	return trouble(ctx, out, servers, held)
}

// trouble takes one server after the other from a holder.
func trouble(ctx context.Context, out io.Writer, servers []*testserver.Server, held *fencelock.Lease) error {
	if err := servers[0].Kill(); err != nil {
		return err
	}
	if err := held.Renew(ctx); err != nil {
		return fmt.Errorf("one of three servers is gone: %w", err)
	}
	fmt.Fprintln(out, "one server dies: two of three renew the lease")

	if err := servers[0].Restart(); err != nil { // it comes back with no data
		return err
	}
	if err := held.Renew(ctx); err != nil {
		return fmt.Errorf("a server was replaced: %w", err)
	}
	fmt.Fprintln(out, "an empty server takes its place: it waits out its quarantine, and the others go on")

	if err := servers[1].Kill(); err != nil {
		return err
	}
	select {
	case <-held.Context().Done():
	case <-ctx.Done():
		return errors.New("the holder was not told that no majority is left")
	}
	fmt.Fprintln(out, "a second server dies before that is over: the holder has lost its lock:", held.Err())
	return nil
}

// start starts the servers. The caller calls stop also after an error.
func start(ctx context.Context) (servers []*testserver.Server, stop func(), err error) {
	dir, err := os.MkdirTemp("", "redlock")
	stop = func() {
		for _, s := range servers {
			_ = s.Stop()
		}
		_ = os.RemoveAll(dir)
	}
	for i := 0; i < members && err == nil; i++ {
		own := filepath.Join(dir, strconv.Itoa(i))
		if err = os.Mkdir(own, 0o700); err != nil {
			break
		}
		var s *testserver.Server
		if s, err = testserver.StartRedis(ctx, own); err == nil {
			servers = append(servers, s)
		}
	}
	return servers, stop, err
}

// open returns the quorum. A program with servers that sync each write says Durable here.
func open(servers []*testserver.Server) (quorum *quorumlock.Backend, done func()) {
	var nodes []driver.Backend
	var clients []*redis.Client
	for _, s := range servers {
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
		clients = append(clients, rdb)
		nodes = append(nodes, redislock.New(rdb, &redislock.Options{Member: &ballot.Membership{}}))
	}
	return quorumlock.New(nodes, nil), func() {
		for _, rdb := range clients {
			_ = rdb.Close()
		}
	}
}
