package others

import (
	"context"
	"errors"
	"os"

	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
)

// replicated is a Redis and its replica, which hears of nothing more.
type replicated struct {
	master, replica *testserver.Server
	link            *faultproxy.Proxy // from the replica to the master
	dir             string
}

// replicated gives the store a replica that lags.
func (s *stage) replicated() (*replicated, error) {
	master, ok := s.store.(*testserver.Server)
	if !ok {
		return nil, errors.New("this store has no replicas")
	}
	dir, err := os.MkdirTemp("", "others-")
	if err != nil {
		return nil, err
	}
	g := &replicated{master: master, dir: dir}
	if g.link, err = faultproxy.Listen(master.Addr(), faultproxy.Framer{}); err == nil {
		g.replica, err = testserver.StartRedis(context.Background(), dir)
	}
	if err == nil {
		err = g.replica.Follow(g.link.Addr())
	}
	if err != nil {
		g.end()
		return nil, err
	}
	g.link.Hold(faultproxy.ToClient)
	return g, nil
}

// failOver kills the master, promotes the replica, and has the proxy lead to it.
func (g *replicated) failOver(p *faultproxy.Proxy) error {
	if err := g.master.Kill(); err != nil {
		return err
	}
	if _, err := g.replica.Ask("REPLICAOF", "NO", "ONE"); err != nil {
		return err
	}
	p.Aim(g.replica.Addr())
	return nil
}

func (g *replicated) end() {
	if g.replica != nil {
		_ = g.replica.Stop()
	}
	if g.link != nil {
		g.link.Close()
	}
	os.RemoveAll(g.dir)
}
