//go:build unix

package serve_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// On ZooKeeper a lock stays with the server that granted it.
func TestZooKeeperSendsClientsToWhoKeepsTheLock(t *testing.T) {
	t.Parallel()
	short := testserver.Config("maxSessionTimeout=9000") // so long a lock of a killed server stays
	keptByOne(t, buildCommand(t), testserver.ZooKeeper(t, short).URL())
}

// So it does on a quorum, here of three Redis servers.
func TestQuorumSendsClientsToWhoKeepsTheLock(t *testing.T) {
	t.Parallel()
	command := buildCommand(t)
	var members []string
	for range 3 {
		members = append(members, testserver.Redis(t).Addr())
	}
	store := "redlock://" + strings.Join(members, ",")
	begin := exec.Command(command, "init", "--yes")
	begin.Env = append(os.Environ(), "FENCELOCK_URL="+store)
	if out, err := begin.CombinedOutput(); err != nil {
		t.Fatalf("init: %v\n%s", err, out)
	}
	keptByOne(t, command, store)
}

// keptByOne plays two clients of two servers that cannot pass locks on.
func keptByOne(t *testing.T, command, store string) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var clients []*client
	var servers []*instance
	for range 2 {
		i := &instance{t: t, command: command, store: store}
		base := balance(t, []*instance{i})
		servers, clients = append(servers, i), append(clients, &client{base, base, http.DefaultClient})
	}
	here, there := clients[0], clients[1]
	for n, i := range servers {
		i.flags = []string{"--advertise", clients[n].base, "--peer", clients[1-n].base}
		i.start()
		t.Cleanup(i.kill)
	}
	first, err := here.acquire(ctx, "k", "first-wish", 20*time.Second)
	steps.Must(t, err)
	handle := map[string]any{"handle": first.Handle}
	for _, verb := range []string{"renew", "check", "release"} {
		status, answer := there.post(ctx, "/v1/"+verb, handle)
		if status != http.StatusMisdirectedRequest || field(string(answer), "instance") != here.base {
			t.Errorf("%s at another server: %d %s, want 421 and %s", verb, status, answer, here.base)
		}
	}
	if status, answer := here.post(ctx, "/v1/renew", handle); status != http.StatusOK {
		t.Errorf("renew where the lock is kept: %d %s", status, answer)
	}
	next := make(chan *held, 1)
	go func() {
		h, err := there.acquire(ctx, "k", "second-wish", 5*time.Second)
		steps.OK(t, err)
		next <- h
	}()
	steps.Must(t, here.release(ctx, first))
	second := <-next
	if second == nil || second.token() <= first.token() {
		t.Fatalf("the other server granted %+v after %+v", second, first)
	}
	servers[1].kill() // and the lock that it keeps ends with it
	third, err := here.acquire(ctx, "k", "third-wish", 20*time.Second)
	if err != nil || third.token() <= second.token() {
		t.Errorf("after the server that kept it was killed: %+v %v", third, err)
	}
}
