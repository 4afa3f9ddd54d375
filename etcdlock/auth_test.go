package etcdlock_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/etcdlock"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/testserver"
)

// The users of a secured server. The user app may read and write keys that begin with
// "fencelock/", the user viewer may read them.
const (
	rootPassword   = "all of it"
	appPassword    = "s3cret"
	viewerPassword = "look"
)

// secured starts a server with authentication, whose logins are quick.
func secured(t *testing.T, flags ...string) *testserver.Server {
	t.Helper()
	s := testserver.Etcd(t, testserver.Persist(true), testserver.Config(append(flags, "--bcrypt-cost=4")...))
	root, ctx := client(t, s), steps.Soon(t)
	steps.Must(t, steps.ErrOf(root.UserAdd(ctx, "root", rootPassword)))
	steps.Must(t, steps.ErrOf(root.UserGrantRole(ctx, "root", "root")))
	end := clientv3.GetPrefixRangeEnd("fencelock/")
	for _, user := range []struct {
		name, password string
		right          clientv3.PermissionType
	}{
		{"app", appPassword, clientv3.PermissionType(clientv3.PermReadWrite)},
		{"viewer", viewerPassword, clientv3.PermissionType(clientv3.PermRead)},
	} {
		steps.Must(t, steps.ErrOf(root.RoleAdd(ctx, user.name)))
		steps.Must(t, steps.ErrOf(root.RoleGrantPermission(ctx, user.name, "fencelock/", end, user.right)))
		steps.Must(t, steps.ErrOf(root.UserAdd(ctx, user.name, user.password)))
		steps.Must(t, steps.ErrOf(root.UserGrantRole(ctx, user.name, user.name)))
	}
	steps.Must(t, steps.ErrOf(root.AuthEnable(ctx)))
	return s
}

// login connects as a user.
func login(t *testing.T, s *testserver.Server, user, password string, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	return dial(t, clientv3.Config{Username: user, Password: password, DialOptions: opts}, s.Addr())
}

// TestLeastPrivilege plays the model as a user who may do nothing outside of the
// prefix.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	s := secured(t)
	// One sequence, and all views with one client: logging in costs the server more than
	// all of it.
	app := login(t, s, "app", appPassword)
	drivertest.Model(t, func(t *testing.T) driver.Backend { return backend(t, app, "") }, drivertest.Seeds(t, 1)...)
	// clientv3.New itself asks for the token, and says no.
	_, err := connect(clientv3.Config{Username: "app", Password: "wr0ng"}, s.Addr())
	if err == nil || strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("a wrong password: %v", err)
	}
}

// TestMissingPermissionIsNamed: the error names the lock, the user, the right that is
// missing, and the command that grants it.
func TestMissingPermissionIsNamed(t *testing.T) {
	t.Parallel()
	s := secured(t)
	ctx := steps.Soon(t)
	app, viewer := login(t, s, "app", appPassword), login(t, s, "viewer", viewerPassword)
	grants := func(right, prefix string) string {
		return "etcdctl role grant-permission ROLE --prefix=true " + right + " " + prefix
	}
	const userless = "user and a password"
	for who, test := range map[string]struct {
		b           *etcdlock.Backend
		write, look []string // what the errors of these calls say; nil if it may look
	}{
		"another prefix": {
			backend(t, app, "elsewhere/"),
			[]string{`"nightly"`, `user "app"`, "write", grants("readwrite", "elsewhere/")},
			[]string{`"nightly"`, `user "app"`, "read", grants("read", "elsewhere/")},
		},
		"a right to read": {
			backend(t, viewer, ""), []string{`"nightly"`, `user "viewer"`, "write", grants("readwrite", "fencelock/")}, nil,
		},
		"no user": {backend(t, client(t, s), ""), []string{`"nightly"`, userless}, []string{`"nightly"`, userless}},
	} {
		checkRefusal(t, who, "Enter", steps.ErrOf(test.b.Enter(steps.Soon(t), steps.Claim("nightly"))), test.write)
		_, looked := test.b.Line(ctx, "nightly")
		pinged := test.b.Ping(ctx)
		if test.look == nil {
			steps.OK(t, errors.Join(looked, pinged))
			continue
		}
		checkRefusal(t, who, "Line", looked, test.look)
		if pinged == nil || strings.Contains(pinged.Error(), `\x00`) {
			t.Errorf("Ping with %s answered %v", who, pinged)
		}
	}
}

func checkRefusal(t *testing.T, who, method string, err error, words []string) {
	t.Helper()
	if steps.Permanent(t, method+" with "+who, err); err == nil {
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s with %s answered %q; want it to say %q", method, who, err, word)
		}
	}
	if strings.Contains(err.Error(), appPassword) {
		t.Errorf("%s with %s names the password: %v", method, who, err)
	}
}

// TestRestartWithAuthenticationKeepsClaims: a server forgets the tokens of its users when
// it restarts. Holder and waiter log in again and go on.
//
//verify:fault etcd | login tokens forgotten
func TestRestartWithAuthenticationKeepsClaims(t *testing.T) {
	t.Parallel()
	oldLogins := []string{"--old-logins"} // as etcd before 3.5
	given := os.Getenv("FENCELOCK_ETCD") != ""
	if given {
		oldLogins = nil // whatever that server does
	}
	t.Run("old server, Relogin", func(t *testing.T) {
		t.Parallel()
		outlivesLogins(t, secured(t, oldLogins...), etcdlock.Relogin())
	})
	if given {
		return
	}
	t.Run("new server", func(t *testing.T) {
		t.Parallel()
		outlivesLogins(t, secured(t))
	})
	// The limit that docs/guarantees.md states. If this fails, clientv3 has been mended.
	t.Run("old server alone", func(t *testing.T) {
		t.Parallel()
		s := secured(t, oldLogins...)
		b := backend(t, login(t, s, "app", appPassword), "")
		held := steps.Hold(t, b, steps.Claim("k"))
		restartWithoutTokens(t, s)
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		steps.Is(t, "Renew", b.Renew(ctx, []driver.Ticket{held})[0], context.DeadlineExceeded)
	})
}

// outlivesLogins has a holder and a waiter with clients of their own, and restarts s.
func outlivesLogins(t *testing.T, s *testserver.Server, dial ...grpc.DialOption) {
	a := backend(t, login(t, s, "app", appPassword, dial...), "")
	b := backend(t, login(t, s, "app", appPassword, dial...), "")
	outlivesRestart(t, a, b, func() { restartWithoutTokens(t, s) })
}

// outlivesRestart has a holder in a and a waiter in b go on after a restart.
func outlivesRestart(t *testing.T, a, b driver.Backend, restart func()) {
	t.Helper()
	held, next := steps.Hold(t, a, steps.Claim("k")), steps.Wait(t, b, steps.Claim("k"))
	restart()
	steps.PersistRenew(t, a, held)
	steps.PersistRenew(t, b, next)
	steps.Leave(t, a, held)
	next = steps.Granted(t, b, next)
	steps.Rises(t, held.Token, next.Token)
	steps.Leave(t, b, next)
}

// restartWithoutTokens kills the server and starts it again. It writes the database first, because
// a server reads its log again from there, and with it the logins.
func restartWithoutTokens(t *testing.T, s *testserver.Server) {
	t.Helper()
	root := login(t, s, "root", rootPassword)
	steps.Must(t, steps.ErrOf(root.Defragment(steps.Soon(t), s.Addr())))
	steps.Must(t, s.Restart())
}

func isRefused(err error) bool {
	return driverutil.RefusedForNow(err)
}

// A server that finds out that it has no space while it applies a put has put it (quotaApplierV3 of
// etcd). The claim was refused, so it is not in line.
func TestPutThatIsRefusedForSpaceIsTakenOutAgain(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	b, d := x.delayed()
	d.commit = func(send sending) (*clientv3.TxnResponse, error) {
		if answer, err := send(); err != nil || !answer.Succeeded {
			return answer, err
		}
		d.pass()
		return nil, rpctypes.ErrNoSpace
	}
	c := steps.Claim("k")
	if _, err := b.Enter(steps.Soon(t), c); !isRefused(err) || !strings.Contains(err.Error(), "disarm") {
		t.Errorf("Enter: %v; want driver.ErrRefused that says what to do", err)
	}
	if left := x.keys("k"); len(left) > 0 {
		t.Errorf("%q is left", left)
	}

	// A claim that is in line already stays: this answer may be about it.
	held := steps.Hold(t, b, c)
	d.commit = func(send sending) (*clientv3.TxnResponse, error) {
		d.pass()
		return nil, rpctypes.ErrNoSpace
	}
	if _, err := b.Enter(steps.Soon(t), c); err == nil || errors.Is(err, driver.ErrRefused) {
		t.Errorf("Enter of a claim in line: %v; want an unknown outcome", err)
	}
	steps.OK(t, steps.Renew(t, b, held))
	steps.Leave(t, b, held)
}

// Other programs fill a server. A claim that is refused is not in line. What ends claims and keeps them alive works
// on.
//
//verify:fault etcd | disk full
func TestServerThatRunsOutOfSpace(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t, testserver.Config("--quota-backend-bytes=8388608")))
	a := x.backend()
	held, waits := steps.Hold(t, a, steps.Claim("held")), steps.Wait(t, a, steps.Claim("held"))
	large, refused := strings.Repeat("x", 100<<10), error(nil)
	for n := 0; n < 1000 && refused == nil; n++ {
		_, _ = x.etcd.Put(steps.Soon(t), x.prefix[:4]+"large", large)
		var ticket driver.Ticket
		if ticket, refused = a.Enter(steps.Soon(t), steps.Claim("k")); refused == nil {
			steps.Leave(t, a, ticket)
		}
	}
	if !isRefused(refused) {
		t.Errorf("Enter on a full store: %v; want driver.ErrRefused", refused)
	}
	steps.Same(t, "keys of a claim that was refused", len(x.keys("k/")), 0)
	for _, err := range a.Renew(steps.Soon(t), []driver.Ticket{held, waits}) {
		steps.Well(t, "Renew on a full store", err)
	}
	steps.Leave(t, a, waits)
	steps.Leave(t, a, held)
}
