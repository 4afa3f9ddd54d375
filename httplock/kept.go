package httplock

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
)

// kept are the leases that a Server keeps for its clients, where the store cannot pass leases
// on. Their handles name the Server.
type kept struct {
	s        *Server
	instance string // in handles: the base URL of the Server, or a random name

	mu       sync.Mutex
	byHandle map[string]*holding
	byID     map[string]*holding // by the ID of the claim
	last     []*holding          // the last ones of a slot that have ended: a release may be repeated
}

// holding is one lease and its handle.
type holding struct {
	handle, name string
	want         *want
	lease        *fencelock.Lease

	// The lease of a slot is held by a call of Once, which waits for the end.
	end   chan error // how the run ended; nil if the lease is of no slot
	ended chan struct{}
	done  bool  // the slot is noted, once ended is closed
	err   error // of Once, once ended is closed
}

func (k *kept) init(s *Server) {
	k.s, k.instance = s, cmp.Or(s.o.Advertise, rand.Text())
	k.byHandle, k.byID = map[string]*holding{}, map[string]*holding{}
}

const keptVersion = "i1"

// keptLast is how many leases of slots a Server remembers after their end.
const keptLast = 1000

func base64Of(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// isKept reports whether handle is one of a lease that a Server keeps.
func isKept(handle string) bool { return strings.HasPrefix(handle, keptVersion+".") }

// readKept returns what a handle says: where the lease is kept, and its key.
func readKept(handle string) (instance, key string, ok bool) {
	f := strings.Split(handle, ".")
	if len(f) != 4 || f[0] != keptVersion {
		return "", "", false
	}
	where, err1 := base64.RawURLEncoding.DecodeString(f[1])
	k, err2 := base64.RawURLEncoding.DecodeString(f[3])
	return string(where), string(k), err1 == nil && err2 == nil && len(k) > 0
}

// add keeps l for the client that asked for w, until it ends.
func (k *kept) add(w *want, name string, l *fencelock.Lease) *holding {
	h := &holding{want: w, name: name, lease: l}
	h.handle = strings.Join([]string{keptVersion, base64Of(k.instance), rand.Text(), base64Of(w.Key)}, ".")
	k.mu.Lock()
	k.byHandle[h.handle], k.byID[w.id] = h, h
	k.mu.Unlock()
	k.s.held.add(name, h.handle, l.Deadline())
	context.AfterFunc(l.Context(), func() { k.remove(h) })
	return h
}

func (k *kept) remove(h *holding) {
	k.mu.Lock()
	delete(k.byHandle, h.handle)
	if k.byID[h.want.id] == h {
		delete(k.byID, h.want.id)
	}
	if h.want.slot != nil {
		k.last = append(k.last[max(0, len(k.last)-keptLast+1):], h)
	}
	k.mu.Unlock()
	k.s.held.remove(h.name, h.handle)
	k.s.watch.Poke(h.lease.Key())
}

// of returns the lease that a request for a claim was granted, or nil.
func (k *kept) of(id string) *holding {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h := k.byID[id]; h != nil && h.lease.Err() == nil {
		return h
	}
	return nil
}

// again returns the lease that an earlier request for w was granted, or nil.
func (k *kept) again(w *want) (*holding, error) {
	h := k.of(w.id)
	if h != nil && !w.isAs(&h.want.wish) {
		return nil, reused().about(w)
	}
	return h, nil
}

func (k *kept) len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.byHandle)
}

// find returns the lease of a handle, or says who keeps it.
func (k *kept) find(handle, instance, key string) (*holding, error) {
	k.mu.Lock()
	h := k.byHandle[handle]
	if i := slices.IndexFunc(k.last, func(h *holding) bool { return h.handle == handle }); h == nil && i >= 0 {
		h = k.last[i]
	}
	k.mu.Unlock()
	switch {
	case h != nil:
		return h, nil
	case instance == k.instance:
		p := lost(errors.New("it has ended, or the server was started anew"))
		p.key = key
		return nil, p
	}
	p := &problem{slug: slugMisdirected, key: key, detail: "Another server keeps this lease; ask that one."}
	if slices.Contains(k.s.o.Peers, instance) {
		p.more = map[string]any{"instance": instance}
	}
	return nil, p
}

// takeKept takes a lease that stays with this Server.
func (s *Server) takeKept(ctx context.Context, c *call, w *want) (any, error) {
	// The context of the lease must not end with the request.
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	h, err := s.keep(own, c, w)
	if !stop() && h != nil {
		// The request has ended in the instant of its grant. The context of the lease has ended,
		// too, so nobody would find the lease, nor end it.
		_ = h.release(own, false)
		h, err = nil, errors.Join(ctx.Err(), context.Cause(ctx))
	}
	if err != nil || h == nil {
		cancel(nil)
		if err == nil {
			return s.doneSlot(ctx, w)
		}
		return nil, err
	}
	return c.granted(w, h, h.lease.Deadline()), nil
}

// keep takes what w asks for. It returns nothing if the slot of w is done.
func (s *Server) keep(ctx context.Context, c *call, w *want) (*holding, error) {
	if w.slot != nil {
		return s.keepSlot(ctx, c, w)
	}
	l, err := w.lock(ctx, s.locks, w.waiting())
	if err != nil {
		return nil, err
	}
	return s.kept.add(w, c.who.name, l), nil
}

var errNotDone = errors.New("the slot stays open")

// keepSlot begins a run of Once, which goes on until the lease ends. It returns nothing if the
// slot is done.
func (s *Server) keepSlot(ctx context.Context, c *call, w *want) (*holding, error) {
	began, over := make(chan *holding, 1), make(chan error, 1)
	go func() {
		var h *holding
		_, err := s.locks.Once(ctx, w.Key, *w.slot, func(_ context.Context, l *fencelock.Lease) error {
			h = s.kept.add(w, c.who.name, l)
			h.end, h.ended = make(chan error, 1), make(chan struct{})
			began <- h
			select {
			case err := <-h.end:
				return err
			case <-l.Context().Done():
				return errNotDone
			}
		}, append(w.options(), w.waiting())...)
		if h == nil {
			if errors.Is(err, fencelock.ErrSlotPassed) {
				err = nil // the answer says which slot is done
			}
			over <- err
			return
		}
		h.done = err == nil
		if err == nil || !errors.Is(err, errNotDone) || errors.Is(err, fencelock.ErrLost) {
			h.err = err
		}
		close(h.ended)
	}()
	select {
	case h := <-began:
		return h, nil
	case err := <-over:
		return nil, err
	}
}

// release ends the lease. done says that the slot of the lease is to be noted as done.
func (h *holding) release(ctx context.Context, done bool) error {
	if h.end == nil {
		if done {
			return invalid("The handle is of no slot: it comes from acquire.")
		}
		return h.lease.Release(ctx)
	}
	how := errNotDone
	if done {
		how = nil
	}
	select {
	case h.end <- how:
	default: // it is released already
	}
	<-h.ended
	if done && !h.done && h.err == nil {
		return lost(errors.New("it was released, and the slot stays open"))
	}
	return h.err
}

// check returns the deadline of the lease.
func (h *holding) check() (time.Time, error) {
	select {
	case <-h.ended:
		return time.Time{}, lost(errors.New("it was released"))
	default:
		return h.lease.Deadline(), h.lease.Err()
	}
}

// renew starts the lease again and returns its deadline, and the notice that it was given or nil.
func (h *holding) renew(ctx context.Context) (deadline time.Time, notice *fencelock.Break, err error) {
	if _, err := h.check(); err != nil {
		return deadline, nil, err
	}
	if err := h.lease.Renew(ctx); err != nil {
		return deadline, nil, err
	}
	if reason, end := h.lease.Revocation(); !end.IsZero() {
		notice = &fencelock.Break{Reason: reason, Notice: time.Until(end)}
	}
	return h.lease.Deadline(), notice, nil
}
