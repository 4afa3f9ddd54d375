package traffic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/rpc"
	"slices"
	"time"

	"github.com/fencelock/fencelock/internal/history"
)

// user does one thing after another.
type user struct {
	o       Order
	service Service
	locks   Locks
	rec     *Recorder
	id      int
	rng     *rand.Rand
	guarded *rpc.Client // the resource
	n       int         // claims
}

func (u *user) run(ctx context.Context) {
	for ctx.Err() == nil {
		// Every user draws the same numbers for the same round, whatever came of it.
		way := u.o.Ways[u.rng.IntN(len(u.o.Ways))]
		key := u.o.Key(way, u.rng.IntN(Keys))
		u.once(ctx, way, key, rand.New(rand.NewPCG(u.rng.Uint64(), 0)))
	}
}

// claim is a wish and what comes of it.
type claim struct {
	*user
	rng  *rand.Rand
	want Want
	name string

	ctx    context.Context // of the call
	cancel func()
}

func (c *claim) write(l Line) {
	l.Key, l.Claim = c.want.Key, c.name
	l.Kind, l.Weight, l.Size = c.want.Kind, c.want.Weight, c.want.Size
	c.rec.Write(l)
}

// once takes and gives back one lock.
func (u *user) once(ctx context.Context, way, key string, rng *rand.Rand) {
	u.n++
	name := fmt.Sprintf("%s/%d/%d", u.o.Proc, u.id, u.n)
	c := &claim{user: u, rng: rng, name: name, want: Want{Key: key}}
	switch {
	case way == "rw" && rng.IntN(3) > 0:
		c.want.Kind = history.Shared
	case way == "sem":
		c.want.Kind, c.want.Weight, c.want.Size = history.Permit, 1+rng.Int64N(2), 3
	}
	if b, ok := u.locks.(Admin); ok && way == "mutex" && rng.IntN(60) == 0 {
		u.breakHead(ctx, b, key, rng.IntN(2) == 0)
		return
	}
	l := c.take(ctx)
	defer c.cancel()
	if l == nil {
		Sleep(ctx, below(rng, 20*time.Millisecond))
		return
	}
	switch way {
	case "reentrant":
		c.reenter(ctx, l)
	case "set", "guard":
		c.change(ctx, l, way == "guard")
	default:
		c.hold(ctx, l)
	}
}

// take calls for the lock in one of several ways. It returns nil if that came to nothing.
func (c *claim) take(stop context.Context) Lease {
	limit := 4*c.o.TTL + 2*time.Second
	switch c.rng.IntN(6) {
	case 0:
		c.want.Try = true
	case 1:
		c.want.Wait = 1 + below(c.rng, c.o.TTL)
	case 2:
		limit = 1 + below(c.rng, c.o.TTL/2)
	}
	// The context lives on when the lock was got, so that the lease's own context tells
	// of its end.
	c.ctx, c.cancel = context.WithCancel(stop)
	timer := time.AfterFunc(limit, c.cancel)
	c.write(Line{Op: Call, By: Now() + int64(limit)})
	l, outcome, err := c.locks.Take(c.ctx, c.want)
	at := Now()
	timer.Stop()
	switch outcome {
	case Got:
	case NotNow:
		c.write(Line{At: at, Op: Refused})
		return nil
	case Strange:
		c.write(Line{At: at, Op: Odd, Text: "taking it: " + err.Error()})
		fallthrough
	default:
		c.write(Line{At: at, Op: GaveUp, Text: err.Error()})
		return nil
	}
	if lost := l.Err(); lost != nil {
		c.write(Line{At: at, Op: Late, Token: l.Token(), Text: lost.Error()})
		_, _ = l.Release(context.Background())
		return nil
	}
	c.write(Line{At: at, Op: Held, Token: l.Token(), Until: until(l)})
	return l
}

// until is the deadline of l as Now counts; 0 if l does not tell, or if the machine stood
// still while the two clocks were compared.
func until(l Lease) int64 {
	d := l.Deadline()
	if d.IsZero() {
		return 0
	}
	for range 3 {
		before, left, after := Now(), time.Until(d), Now()
		if after-before < int64(500*time.Microsecond) {
			return after + int64(left)
		}
	}
	return 0
}

// sure writes down whether l is held.
func (c *claim) sure(l Lease) bool {
	at := Now()
	if err := l.Err(); err != nil {
		c.writeLost(l, "", err)
		return false
	}
	c.write(Line{At: at, Op: Look, Token: l.Token(), Until: until(l)})
	return true
}

func (c *claim) writeLost(l Lease, handle string, err error) {
	c.write(Line{Op: Lost, Handle: handle, Token: l.Token(), Until: until(l), Text: err.Error()})
}

// hold keeps l for a while, looks at it now and then, and gives it back.
func (c *claim) hold(ctx context.Context, l Lease) {
	for _, d := range c.looks() {
		if !c.rest(ctx, l, d) {
			break
		}
		if r, ok := l.(Extender); ok && c.rng.IntN(8) == 0 {
			call, cancel := context.WithTimeout(ctx, c.o.TTL)
			err := r.Renew(call)
			cancel()
			if err == nil {
				c.write(Line{Op: Renewed, Token: l.Token()})
			}
		}
		if !c.sure(l) {
			break
		}
	}
	c.give(l, "")
}

// looks are the pauses between looks: mostly short work, now and then longer than a
// lease. Where a holder is not told of its end, its work ends within half a lease, as such
// libraries ask for.
func (c *claim) looks() []time.Duration {
	total := below(c.rng, 15*time.Millisecond)
	if c.rng.IntN(12) == 0 {
		total = below(c.rng, c.o.TTL*3/2)
		if !c.service.Told {
			total /= 3
		}
	}
	var all []time.Duration
	for each := max(c.o.TTL/20, time.Millisecond); total > 0; total -= each {
		all = append(all, min(each, total))
	}
	return all
}

// rest waits for d. It returns false when the run or the lease is over.
func (c *claim) rest(ctx context.Context, l Lease, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	case <-l.Context().Done():
	}
	at := Now()
	switch err := l.Err(); {
	case err != nil:
		c.write(Line{At: at, Op: Told, Token: l.Token(), Until: until(l), Text: err.Error()})
	case c.ctx.Err() == nil:
		c.write(Line{At: at, Op: Odd, Token: l.Token(), Text: "the context of a lock that is held has ended"})
	}
	return false
}

// give releases a handle, if it is still held.
func (c *claim) give(l Lease, handle string) {
	at := Now()
	if err := l.Err(); err != nil {
		c.writeLost(l, handle, err)
		if lost, err := l.Release(context.Background()); !lost {
			text := fmt.Sprintf("the release of a lost lock says %v", err)
			c.write(Line{Op: Odd, Handle: handle, Token: l.Token(), Text: text})
		}
		return
	}
	c.write(Line{At: at, Op: Release, Handle: handle, Token: l.Token(), Until: until(l)})
	lost, err := l.Release(context.Background())
	done := Line{Op: Released, Handle: handle, Token: l.Token()}
	switch {
	case lost:
		done.Op = Lost
	case err != nil:
		done.Op = Unconfirmed
	}
	if err != nil {
		done.Text = err.Error()
	}
	c.write(done)
}

// reenter takes the lock again under its own context, one to three times, and gives the
// handles back in any order.
func (c *claim) reenter(ctx context.Context, l Lease) {
	handles := []Lease{l}
	names := []string{""}
	for i := range 1 + c.rng.IntN(3) {
		r, ok := handles[c.rng.IntN(len(handles))].(Extender)
		if !ok || !c.rest(ctx, l, below(c.rng, 5*time.Millisecond)) {
			break
		}
		name := fmt.Sprint("h", i+1)
		c.write(Line{Op: Again, Handle: name})
		again, err := r.Again(ctx)
		at := Now()
		if err != nil {
			// The context of a lease descends from that of its call, whose time may have run out at the
			// moment of the grant.
			if l.Err() == nil && c.ctx.Err() == nil {
				c.write(Line{At: at, Op: Odd, Handle: name, Text: "taking it again: " + err.Error()})
			}
			continue
		}
		if again.Err() != nil {
			_, _ = again.Release(context.Background())
			continue
		}
		c.write(Line{At: at, Op: Held, Handle: name, Token: again.Token(), Until: until(again)})
		handles, names = append(handles, again), append(names, name)
	}
	for len(handles) > 0 {
		i := c.rng.IntN(len(handles))
		// The context of a handle descends from that of the handle it was taken under.
		Sleep(ctx, below(c.rng, 5*time.Millisecond))
		c.give(handles[i], names[i])
		handles, names = slices.Delete(handles, i, i+1), slices.Delete(names, i, i+1)
	}
}

// change adds the claim's own name to a set: it reads, thinks and writes. Half of the users
// do not look before they write, as programs do that trust their lock.
func (c *claim) change(ctx context.Context, l Lease, guarded bool) {
	defer c.give(l, "")
	q := Request{Key: c.want.Key, Claim: c.name, Proc: c.o.Proc}
	if guarded {
		q.Token = l.Token()
	}
	var read Reply
	if err := c.guarded.Call("Resource.Answer", q, &read); err != nil || read.Denied {
		return
	}
	think := below(c.rng, 8*time.Millisecond)
	if c.rng.IntN(4) == 0 {
		think = below(c.rng, c.o.TTL/2)
	}
	if c.rng.IntN(2) == 0 {
		Sleep(ctx, think)
	} else if c.rest(ctx, l, think); !c.sure(l) {
		return
	}
	q.Write, q.Base, q.Members = true, read.Version, append(read.Members, c.name)
	var wrote Reply
	if err := c.guarded.Call("Resource.Answer", q, &wrote); err != nil || wrote.Denied {
		c.write(Line{Op: NotAdded, Token: q.Token})
		return
	}
	c.write(Line{Op: Added, Token: q.Token, Base: q.Base, Version: wrote.Version})
	c.sure(l)
}

// breakHead ends the claim that holds key, at once or half a TTL later.
func (u *user) breakHead(ctx context.Context, b Admin, key string, gently bool) {
	call, cancel := context.WithTimeout(ctx, u.o.TTL)
	defer cancel()
	token, span, err := b.Head(call, key)
	if err != nil || token == 0 {
		return
	}
	u.rec.Write(Line{Op: Break, Key: key, Token: token, Span: span})
	notice := time.Duration(0)
	if gently {
		notice = max(u.o.TTL/2, u.service.MinTTL)
	}
	none, err := b.Break(call, key, token, notice)
	done := Line{Op: Broke, Key: key, Token: token, Span: span}
	switch {
	case none:
		done.Text = "none"
	case err != nil:
		done.Text = "unknown"
	}
	u.rec.Write(done)
}

// Sleep waits. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// below is a random duration.
func below(rng *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(limit)))
}
