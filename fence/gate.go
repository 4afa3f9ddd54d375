package fence

import (
	"context"
	"sync"
)

// Gate guards one resource that lives in this process, or that only this process
// writes: a file, a device, a connection. It serves callers of this process, and
// those whose tokens come with their messages.
//
// The zero value is ready, and has seen no token. A Gate forgets with its process:
// if the resource outlives it, as a file does, keep the largest token next to the
// data and pass it to Seed after a start.
//
// Its methods may be called from many goroutines at once. A Gate must not be
// copied after first use.
type Gate struct {
	// Resource names what is guarded in errors. It may be empty.
	Resource string

	init sync.Once
	turn chan struct{} // has room for the one who is inside
	seen Token         // belongs to who is inside
}

// Do runs f and returns its error, unless the Gate has seen a larger token than t: then
// it returns ErrStale. While f runs, the Gate lets no other caller in, because a comparison
// that is not one step with the write guards nothing. Another caller waits, and its token is
// compared when f has returned. If ctx ends first, Do returns the cause of ctx and f does
// not run.
//
// f must not call Do of the same Gate: it would wait for itself. The token counts
// as seen whatever f returns, and also if f panics.
func (g *Gate) Do(ctx context.Context, t Token, f func() error) error {
	if err := need(g.Resource, t); err != nil {
		return err
	}
	if err := g.enter(ctx); err != nil {
		return err
	}
	defer g.leave()
	if err := compare(g.Resource, t, g.seen); err != nil {
		return err
	}
	g.seen = t
	return f()
}

// Seed makes t the largest token seen, unless the Gate has seen a larger one.
func (g *Gate) Seed(ctx context.Context, t Token) error {
	if err := g.enter(ctx); err != nil {
		return err
	}
	defer g.leave()
	g.seen = max(g.seen, t)
	return nil
}

func (g *Gate) enter(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	g.init.Do(func() { g.turn = make(chan struct{}, 1) })
	select {
	case g.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *Gate) leave() { <-g.turn }

// Gates holds a Gate for each of many resources. The zero value is ready. It keeps a
// token, in some 200 bytes, for each resource that it has ever seen, for as long as it
// lives. It is a [Marks] for a service that runs as a single process and whose
// resources end with that process.
type Gates struct {
	gates sync.Map // *Gate by resource
}

var _ Marks = (*Gates)(nil)

// Do runs f as [Gate.Do] does on the Gate of resource. Resources do not wait for
// each other.
func (g *Gates) Do(ctx context.Context, resource string, t Token, f func(ctx context.Context) error) error {
	if err := need(resource, t); err != nil { // else anybody could fill the map
		return err
	}
	gate, ok := g.gates.Load(resource)
	if !ok {
		gate, _ = g.gates.LoadOrStore(resource, &Gate{Resource: resource})
	}
	return gate.(*Gate).Do(ctx, t, func() error { return f(ctx) })
}
