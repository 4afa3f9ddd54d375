//go:build verify

package etcd_test

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/fencelock/fencelock/internal/testserver"
)

// Two of three members are gone. The one that is left knows no leader, and has done nothing.
func TestMemberWithoutALeader(t *testing.T) {
	t.Parallel()
	members := testserver.EtcdCluster(t, 3)
	b := backend(t, client(t, members[0]), newPrefix())
	leave(t, b, hold(t, b, claim("k")))
	must(t, members[1].Kill())
	must(t, members[2].Kill())
	var err error
	for end := time.Now().Add(30 * time.Second); !isRefused(err); sleep(50 * time.Millisecond) {
		if _, err = b.Enter(soon(t), claim("k")); time.Now().After(end) {
			t.Fatalf("Enter: %v; want driver.ErrRefused", err)
		}
	}
	if !errors.Is(err, rpctypes.ErrNoLeader) {
		t.Errorf("Enter: %v; want %v", err, rpctypes.ErrNoLeader)
	}
}
