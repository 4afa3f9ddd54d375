package zklock

import (
	"errors"
	"fmt"
	"path"

	"github.com/go-zookeeper/zk"
)

// right is what a request needs: a permission on a node. ZooKeeper answers a request
// that lacks it with zk.ErrNoAuth and names neither.
type right struct {
	verb       string
	permission string // its letter in an ACL
	node       string
}

func toRead(node string) right   { return right{"read", "r", node} }
func toWrite(node string) right  { return right{"write to", "w", node} }
func toCreate(node string) right { return right{"create nodes in", "c", path.Dir(node)} }
func toDelete(node string) right { return right{"delete nodes in", "d", path.Dir(node)} }

// neededBy returns the right that one operation of a transaction needs.
func neededBy(op any) right {
	switch op := op.(type) {
	case *zk.CreateRequest:
		return toCreate(op.Path)
	case *zk.DeleteRequest:
		return toDelete(op.Path)
	case *zk.SetDataRequest:
		return toWrite(op.Path)
	case *zk.CheckVersionRequest:
		return toRead(op.Path)
	}
	return right{}
}

// explain names r in an error that says that a right is missing. It matches zk.ErrNoAuth.
func (r right) explain(err error) error {
	if r.node == "" || !errors.Is(err, zk.ErrNoAuth) {
		return err
	}
	return fmt.Errorf("this client may not %s %q: give it the Digest of a user who may, "+
		"or grant the permission %s in the ACL of %[2]q (%[4]w)", r.verb, r.node, r.permission, err)
}
