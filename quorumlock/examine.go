package quorumlock

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver/health"
)

var _ health.Examiner = (*Backend)(nil)

// examineFor bounds the examination of one member.
const examineFor = 10 * time.Second

// Examine asks each member that is a health.Examiner what its settings mean for locks of ttl,
// all at once. It adds what endangers the quorum as a whole: members that share a host, and
// members of which most lose their memory together.
func (b *Backend) Examine(ctx context.Context, ttl time.Duration) (health.Result, error) {
	if err := b.begin(ctx); err != nil {
		return health.Result{}, err
	}
	defer b.done()
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, examineFor)
	defer cancel()
	found := make([]health.Result, len(b.nodes))
	acks := b.ask(func(i int, n *node) (err error) {
		if examiner, ok := n.Member.(health.Examiner); ok {
			found[i], err = examiner.Examine(ctx, ttl)
		}
		return err
	})
	errs := make([]error, len(b.nodes))
	for range b.nodes {
		a := <-acks
		errs[a.node] = a.err
	}
	e := health.Result{}
	for i, n := range b.nodes {
		for _, f := range found[i].Findings {
			f.Server = strings.TrimSuffix(n.name+", "+f.Server, ", ")
			e.Add(f)
		}
		if errs[i] != nil {
			e.Add(health.Finding{
				Severity: health.Warning, Code: "quorum-member-down", Server: n.name, Setting: "settings",
				Value:  health.OneLine(errs[i].Error()),
				Why:    "The quorum survives the loss of fewer members now, or of none.",
				Remedy: "start the member, or do what the message says, then run doctor again",
			})
		}
		e.Hosts = append(e.Hosts, found[i].Hosts...)
	}
	b.sameStores(ctx, &e)
	b.sharedHosts(ctx, &e, found)
	b.sharedLoss(&e, found)
	return e, caller.Err()
}

// sameStores finds members that are one store.
func (b *Backend) sameStores(ctx context.Context, e *health.Result) {
	for _, twins := range b.twins(ctx) {
		e.Add(health.Finding{
			Severity: health.Error, Code: "quorum-same-store", Setting: "members",
			Value: twins + " are one store",
			Why: "The store has one vote under all its names, so the quorum survives the loss of fewer members, " +
				"or of none.",
			Remedy: "start an empty server, and write its host:port into the URL in place of the second name",
		})
	}
}

// sharedHosts finds hosts that keep more than one member.
func (b *Backend) sharedHosts(ctx context.Context, e *health.Result, found []health.Result) {
	on := map[string][]string{} // names of members by host
	for i, n := range b.nodes {
		for _, host := range found[i].Hosts {
			if host = addressOf(ctx, host); !slices.Contains(on[host], n.name) {
				on[host] = append(on[host], n.name)
			}
		}
	}
	for _, host := range slices.Sorted(maps.Keys(on)) {
		if names := on[host]; len(names) > 1 {
			e.Add(health.Finding{
				Severity: health.Warning, Code: "quorum-shared-host", Setting: "hosts of the members",
				Value: host + " has " + strings.Join(names, ", "),
				Why:   "These members fail together, so the quorum survives less than it seems.",
				Remedy: "replace each but one by an empty server on a host of its own, one at a time with a " +
					"quarantine between, and write its host:port into the URL",
			})
		}
	}
}

// addressOf returns the first address of a host, or its name.
func addressOf(ctx context.Context, host string) string {
	addrs, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil || len(addrs) == 0 {
		return host
	}
	return slices.Min(addrs)
}

// sharedLoss finds that a power failure of all members takes the memory of most.
func (b *Backend) sharedLoss(e *health.Result, found []health.Result) {
	n := 0
	for _, f := range found {
		if f.Volatile {
			n++
		}
	}
	e.Volatile = n >= b.majority
	if e.Volatile {
		e.Add(health.Finding{
			Severity: health.Warning, Code: "quorum-volatile", Setting: "persistence of the members",
			Value: fmt.Sprintf("%d of %d may forget", n, len(b.nodes)),
			Why: fmt.Sprintf("They share a setting by which a power failure takes the memory of most of them. No "+
				"lock is granted then until the quarantine of %v is over.", b.info.MaxTTL),
			Remedy: "CONFIG SET appendonly yes, then CONFIG SET appendfsync always on every member; then " +
				"durable=true in the URL (Membership.Durable) and fencelock init --change",
		})
	}
}
