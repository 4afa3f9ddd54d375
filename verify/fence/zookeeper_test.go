package fence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/zklock"
)

type silence struct{}

func (silence) Printf(string, ...any) {}

func dialZooKeeper(addr string) (*zk.Conn, error) {
	c, _, err := zk.Connect([]string{addr}, 9*time.Minute, zk.WithLogger(silence{}), zk.WithLogInfo(false))
	return c, err
}

func newZooKeeper(t testing.TB) (conn *zk.Conn, addr string) {
	t.Helper()
	s := sharedZooKeeper(t)
	c, err := dialZooKeeper(s.Addr())
	steps.Must(t, err)
	t.Cleanup(c.Close)
	return c, s.Addr()
}

func setNode(path, text string) *zk.SetDataRequest {
	return &zk.SetDataRequest{Path: path, Data: []byte(text), Version: -1}
}

func createNode(t testing.TB, conn *zk.Conn, path string) {
	t.Helper()
	steps.Must(t, steps.ErrOf(conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))))
}

func TestZooKeeperFenceRefusesSmallerTokensOnly(t *testing.T) {
	t.Parallel()
	conn, _ := newZooKeeper(t)
	f := zklock.NewFence(conn, &zklock.FenceOptions{Prefix: "/refuses/marks"})
	for i, pair := range neighbours {
		old, new := pair[0], pair[1]
		resource, path := fmt.Sprint("a/\x00", old), fmt.Sprint("/refuses", i)
		createNode(t, conn, path)
		for _, tok := range []fence.Token{old, old, new, new} {
			rs, err := f.Do(t.Context(), resource, tok, setNode(path, tok.String()))
			if err != nil || len(rs) != 1 || rs[0].Stat == nil {
				t.Errorf("%v: %v, %v", tok, rs, err)
			}
		}
		staleError(t, steps.ErrOf(f.Do(t.Context(), resource, old, setNode(path, "late"))), fence.StaleError{Resource: resource, Token: old, Seen: new})
		if data, _, err := conn.Get(path); err != nil || string(data) != new.String() {
			t.Errorf("refused, and yet the node became %s, %v", data, err)
		}
		steps.OK(t, steps.ErrOf(f.Do(t.Context(), resource, new, &zk.DeleteRequest{Path: path, Version: -1})))
		late := &zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll)}
		stale(t, "what was deleted came back", steps.ErrOf(f.Do(t.Context(), resource, old, late)))
	}
}

func TestZooKeeperFenceChecksWhatItIsGiven(t *testing.T) {
	t.Parallel()
	conn, _ := newZooKeeper(t)
	f := zklock.NewFence(conn, &zklock.FenceOptions{Prefix: "/checks"})
	for _, tok := range []fence.Token{0, -1} {
		steps.Is(t, int64(tok), steps.ErrOf(f.Do(t.Context(), "a", tok)), fence.ErrNoToken)
	}
	for name, err := range map[string]error{
		"a resource without a name": steps.ErrOf(f.Do(t.Context(), "", 7)),
		"no connection":             steps.ErrOf(zklock.NewFence(nil, nil).Do(t.Context(), "a", 7)),
		"a prefix that is no path": steps.ErrOf(
			zklock.NewFence(conn, &zklock.FenceOptions{Prefix: "marks/"}).Do(t.Context(), "a", 7)),
	} {
		if err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	// An operation that fails takes the mark back with it, and is told apart.
	if _, err := f.Do(t.Context(), "a", 9, setNode("/not/there", "x")); !errors.Is(err, zk.ErrNoNode) || errors.Is(err, fence.ErrStale) {
		t.Error(err)
	}
	steps.Well(t, "a write that failed counted as seen", steps.ErrOf(f.Do(t.Context(), "a", 7)))
	stale(t, "7 was shown without operations; a late write", steps.ErrOf(f.Do(t.Context(), "a", 5, setNode("/zookeeper", "late"))))
	steps.Must(t, steps.ErrOf(conn.Set(f.Mark("a"), []byte("something else"), -1)))
	if _, err := f.Do(t.Context(), "a", 9); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("a mark that is no token: %v", err)
	}
}

// The nodes of marks are not for fenced writes: one that deleted its own mark would let
// every stale holder write after it.
func TestZooKeeperFenceKeepsItsMarksToItself(t *testing.T) {
	t.Parallel()
	conn, _ := newZooKeeper(t)
	f := zklock.NewFence(conn, &zklock.FenceOptions{Prefix: "/own/marks"})
	createNode(t, conn, "/own-data")
	for _, resource := range []string{"a", "b"} {
		steps.Must(t, steps.ErrOf(f.Do(t.Context(), resource, 9)))
	}
	create := func(path string) any { return &zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll)} }
	remove := func(path string) any { return &zk.DeleteRequest{Path: path, Version: -1} }
	for name, op := range map[string]any{
		"delete its mark":       remove(f.Mark("a")),
		"write its mark":        setNode(f.Mark("a"), "1"),
		"create a mark":         create(f.Mark("c")),
		"delete the prefix":     remove("/own/marks"),
		"dots":                  remove("/own/marks/./b/../a"),
		"no slash at the start": remove("own/marks/a"),
	} {
		_, err := f.Do(t.Context(), "a", 9, setNode("/own-data", name), op)
		if err == nil || !strings.Contains(err.Error(), "belong to the fence") {
			t.Errorf("%s: %v; want it refused", name, err)
		}
		stale(t, "after an attempt to "+name, steps.ErrOf(f.Do(t.Context(), "a", 7, setNode("/own-data", "stale"))))
	}
	// Nodes whose names begin alike are not the fence's.
	for _, path := range []string{"/own/marks-of-others", "/own/mark"} {
		steps.Well(t, path, steps.ErrOf(f.Do(t.Context(), "a", 9, create(path), remove(path))))
	}
	// A condition changes nothing.
	check := &zk.CheckVersionRequest{Path: f.Mark("b"), Version: -1}
	steps.Well(t, "a check of another mark", steps.ErrOf(f.Do(t.Context(), "a", 9, check)))
}

// meets lets another writer in between the reading of the mark and the write.
type meets struct {
	*zk.Conn
	once sync.Once
	then func()
}

func (m *meets) Multi(ops ...any) ([]zk.MultiResponse, error) {
	m.once.Do(m.then)
	return m.Conn.Multi(ops...)
}

func TestZooKeeperFenceIsNotFooledBetweenReadAndWrite(t *testing.T) {
	t.Parallel()
	conn, _ := newZooKeeper(t)
	createNode(t, conn, "/between")
	other := zklock.NewFence(conn, &zklock.FenceOptions{Prefix: "/betweens"})
	for _, known := range []bool{false, true} { // at first the mark is not there
		resource := fmt.Sprint("a", known)
		if known {
			steps.Must(t, steps.ErrOf(other.Do(t.Context(), resource, 5)))
		}
		m := &meets{Conn: conn, then: func() {
			steps.OK(t, steps.ErrOf(other.Do(context.Background(), resource, 9, setNode("/between", "new"))))
		}}
		f := zklock.NewFence(m, &zklock.FenceOptions{Prefix: "/betweens"})
		stale(t, resource, steps.ErrOf(f.Do(t.Context(), resource, 7, setNode("/between", "late"))))
		if data, _, err := conn.Get("/between"); err != nil || string(data) != "new" {
			t.Errorf("known %v: the node became %s, %v", known, data, err)
		}
	}
}

func TestZooKeeperHoldingIsTrueForTheHolderOnly(t *testing.T) {
	t.Parallel()
	conn, addr := newZooKeeper(t)
	createNode(t, conn, "/holding")
	o := &zklock.Options{Prefix: "/holdinglocks"}
	b := zklock.New([]string{addr}, o)
	trueForTheHolderOnly(t, b, zklock.New([]string{addr}, o), func(key string, tok fence.Token) (func() bool, error) {
		c, err := b.Holding(t.Context(), key, tok)
		return func() bool {
			_, err := conn.Multi(c, setNode("/holding", "x"))
			if err != nil && !errors.Is(err, zk.ErrNoNode) {
				t.Fatal(err)
			}
			return err == nil
		}, err
	})
}
