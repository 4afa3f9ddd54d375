//go:build unix

package storeurl_test

import (
	"context"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
)

// A server before etcd 3.5 forgets the tokens of its users when it restarts. A store that was opened by
// its URL logs in again.
func TestStoreURLLogsInToEtcdAgain(t *testing.T) {
	t.Parallel()
	flags := []string{"--bcrypt-cost=4", "--old-logins"}
	if os.Getenv("FENCELOCK_ETCD") != "" {
		flags = flags[:1] // whatever that server does
	}
	s := testserver.Etcd(t, testserver.Persist(true), testserver.Config(flags...))
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}})
	steps.Must(t, err)
	defer root.Close()
	steps.Must(t, steps.ErrOf(root.UserAdd(steps.Soon(t), "root", "s3cret")))
	steps.Must(t, steps.ErrOf(root.UserGrantRole(steps.Soon(t), "root", "root")))
	steps.Must(t, steps.ErrOf(root.AuthEnable(steps.Soon(t))))

	u, err := storeurl.Parse("etcd://root@"+s.Addr(), storeurl.Source{Name: "test", Password: "s3cret"})
	steps.Must(t, err)
	store, err := u.Open(steps.Soon(t), storeurl.Config{})
	steps.Must(t, err)
	defer store.Close()
	held := steps.Hold(t, store.Backend, steps.TTL(steps.Claim("k"), time.Minute))
	// It writes the database first: a server reads its log again from there, and with it the logins.
	as, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Username: "root", Password: "s3cret"})
	steps.Must(t, err)
	defer as.Close()
	steps.Must(t, steps.ErrOf(as.Defragment(context.Background(), s.Addr())))
	steps.Must(t, s.Restart())
	steps.PersistRenew(t, store.Backend, held)
	steps.PersistLeave(t, store.Backend, held)
}
