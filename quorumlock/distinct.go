package quorumlock

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/driver"
)

// identified is a member that knows which store it is: one answer for each running server.
type identified interface {
	StoreID(ctx context.Context) (string, error)
}

// Distinct asks the members which stores they are. It returns a driver.ErrPermanent that
// names the members that are one store: a server under two names, or two databases of one
// server. Such a member has no vote of its own, so the quorum survives the loss of fewer
// members than it seems. Redis members know which store they are; others are left out, as are
// members that do not respond. Distinct costs one request to each member.
func (b *Backend) Distinct(ctx context.Context) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	defer b.done()
	twins := b.twins(ctx)
	if len(twins) == 0 {
		return ctx.Err()
	}
	return driver.Permanent(fmt.Errorf("quorum: %s are one store: a majority of names would not be a "+
		"majority of stores; give each member a server of its own", strings.Join(twins, ", and ")))

}

// twins names the members that are one store, a text for each such store.
func (b *Backend) twins(ctx context.Context) (twins []string) {
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	ids := make([]string, len(b.nodes))
	acks := b.ask(func(i int, n *node) error {
		var err error
		if known, ok := n.Member.(identified); ok {
			ids[i], err = known.StoreID(ctx)
		}
		return err
	})
	names := map[string][]string{}
	for range b.nodes {
		if a := <-acks; a.err == nil && ids[a.node] != "" {
			names[ids[a.node]] = append(names[ids[a.node]], b.nodes[a.node].name)
		}
	}
	for _, id := range ids {
		if same := names[id]; len(same) > 1 {
			slices.Sort(same)
			twins = append(twins, strings.Join(same, " and "))
			delete(names, id)
		}
	}
	return twins
}
