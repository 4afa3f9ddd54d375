package etcdlock

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

// put writes the record under name on the lease l.
func (r *record) put(name string, l *lease) clientv3.Op {
	return clientv3.OpPut(name, encode(r), clientv3.WithLease(l.id))
}

// openEpoch reads the epoch of a line for a claim that follows another store, and makes it if there is none: the
// revision that makes it is above all tokens that the line has drawn without it.
func (b *Backend) openEpoch(ctx context.Context, p *position) error {
	name, value := p.line.epoch(), encode(epoch{Format: format})
	answer, err := b.etcd.Txn(ctx).
		If(absent(name)).
		Then(clientv3.OpPut(name, value), clientv3.OpGet(name), p.line.claims().first()).
		Else(clientv3.OpGet(name), clientv3.OpGet(name), p.line.claims().first()).
		Commit()
	if err == nil {
		p.epoch, p.head = first(found(answer, 1)), first(found(answer, 2))
	}
	return err
}

// draw returns what puts the claim c of p into its line. On a line with an epoch it draws the next token, and has
// the epoch say so in the same transaction.
func (p *position) draw(c *driver.Claim, r *record, l *lease) ([]clientv3.Op, error) {
	if p.epoch == nil {
		r.Token = 0
		return []clientv3.Op{r.put(p.name, l)}, nil
	}
	var e epoch
	if err := decode(p.epoch, &e); err != nil {
		return nil, err
	}
	r.Token = max(e.Last, tokenOf(p.epoch.CreateRevision), c.After) + 1
	e.Last = r.Token + c.Span - 1
	return []clientv3.Op{r.put(p.name, l), clientv3.OpPut(p.line.epoch(), encode(e))}, nil
}
