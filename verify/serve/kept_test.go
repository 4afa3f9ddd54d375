//go:build unix

package serve_test

import (
	"context"
	"net"
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	addrs := []string{freeAddr(t), freeAddr(t)}
	var clients []*client
	var servers []*instance
	for n, addr := range addrs {
		base := "http://" + addr
		i := &instance{t: t, command: command, store: store, flags: []string{
			"--listen", addr, "--advertise", base, "--peer", "http://" + addrs[1-n],
		}}
		i.start()
		t.Cleanup(i.kill)
		servers, clients = append(servers, i), append(clients, &client{base, base, http.DefaultClient})
	}
	here, there := clients[0], clients[1]
	first, err := here.acquire(ctx, "k", "first-wish", 5*time.Second)
	steps.Must(t, err)
	handle := map[string]any{"handle": first.Handle}
	for _, verb := range []string{"renew", "check", "release"} {
		status, answer := there.post(ctx, "/v1/"+verb, handle)
		if status != http.StatusMisdirectedRequest || field(string(answer), "instance") != here.base {
			t.Errorf("%s at another server: %d %s, want 421 and %s", verb, status, answer, here.base)
		}
	}
	// The other server has not seen the request, and the store does not know it by its ID.
	reused := map[string]any{"key": "k", "request_id": "first-wish", "kind": "shared"}
	status, answer := there.post(ctx, "/v1/acquire", reused)
	if status != http.StatusConflict || !strings.HasSuffix(field(string(answer), "type"), "/request-id-reused") {
		t.Errorf("a request_id that is used for another kind at another server: %d %s", status, answer)
	}
	if status, answer := here.post(ctx, "/v1/renew", handle); status != http.StatusOK {
		t.Errorf("renew where the lock is kept: %d %s", status, answer)
	}
	next := make(chan *held, 1)
	go func() {
		h, err := there.acquire(ctx, "k", "second-wish", 2*time.Second)
		steps.OK(t, err)
		next <- h
	}()
	steps.Must(t, here.release(ctx, first))
	second := <-next
	if second == nil || second.token() <= first.token() {
		t.Fatalf("the other server granted %+v after %+v", second, first)
	}
	servers[1].kill() // and the lock that it keeps ends with it
	third, err := here.acquire(ctx, "k", "third-wish", 2*time.Second)
	if err != nil || third.token() <= second.token() {
		t.Errorf("after the server that kept it was killed: %+v %v", third, err)
	}
}

// freeAddr is an address that nobody listens on.
func freeAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	steps.Must(t, err)
	defer l.Close()
	return l.Addr().String()
}
