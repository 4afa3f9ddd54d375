package httplock

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/httplock/internal/watch"
)

// giveUp takes back a lock whose client will not have it.
func (q *stateRequest) giveUp(l *StateLock) {
	ctx, cancel := q.storing()
	defer cancel()
	// What this does not reach ends with the lease, or in the next pass of tend.
	_ = q.s.endState(ctx, q.name, l.Handle, func() error { return q.s.locks.ReleaseDetached(ctx, l.Handle) })
	q.s.held.remove(q.who.name, string(l.Handle))
}

// endState has end take the lock with this handle out of the line. The record says so before
// and after, so that a Server that dies meanwhile leaves nothing behind.
func (s *Server) endState(ctx context.Context, name string, h fencelock.Handle, end func() error) error {
	if err := s.changeRecord(ctx, name, h, func(l *StateLock) { l.Ending = true }); err != nil {
		return err
	}
	err := end()
	if err != nil && !isOver(err) {
		return err
	}
	return errors.Join(err, s.changeRecord(ctx, name, h, func(l *StateLock) { *l = StateLock{LastID: l.ID} }))
}

// changeRecord changes the record of name if it has this handle.
func (s *Server) changeRecord(ctx context.Context, name string, h fencelock.Handle, change func(*StateLock)) error {
	for range stateTries {
		rec, version, err := s.o.States.Lock(ctx, name)
		if err != nil || rec.Handle != h {
			return err
		}
		change(&rec)
		if err = s.o.States.SetLock(ctx, name, rec, version); !errors.Is(err, ErrStateChanged) {
			return err
		}
	}
	return ErrStateChanged
}

// unlock answers UNLOCK. Terraform's force-unlock sends no body, and that of OpenTofu the ID
// alone.
func (q *stateRequest) unlock() (any, error) {
	info, err := q.readInfo()
	if err != nil {
		return nil, err
	}
	return q.again(func() (any, error) { return q.tryUnlock(info) })
}

func (q *stateRequest) tryUnlock(info *lockInfo) (any, error) {
	v, err := q.look()
	if err != nil {
		return nil, err
	}
	held := len(v.line.Holders) > 0
	stranger := held && !v.live
	switch {
	case v.rec.ID != "" && (info.ID == v.rec.ID || info.ID == "" && !stranger):
		return q.unlockRecord(v, info)
	case stranger && (info.ID == "" || info.ID == strangerID(&v.line.Holders[0])):
		return q.breakHolder(v.line.Holders[0].Token)
	case info.ID != "" && info.ID == v.rec.LastID:
		return unlocked, nil // and its answer was lost
	case held:
		return nil, &problem{slug: slugNotAcquired, key: q.key,
			detail: fmt.Sprintf("The state is locked under another ID, %q; nothing was changed.", v.holderID())}
	}
	return nil, &problem{slug: slugNoClaim, key: q.key, detail: "The state is not locked, so nothing was changed."}
}

var unlocked = text{"application/json", "{}\n"}

// unlockRecord ends the lock that the record is of.
func (q *stateRequest) unlockRecord(v *stateView, info *lockInfo) (any, error) {
	rec := &v.rec
	token := rec.Handle.Token()
	own := rec.Principal == q.who.name
	what, ended, reason := actUnlock, watch.Released, ""
	ctx, cancel := q.storing()
	defer cancel()
	end := func() error { return q.s.locks.ReleaseDetached(ctx, rec.Handle) }
	if !own || !info.whole() {
		what, ended, reason = actForceUnlock, watch.Broken, "force-unlock by "+q.defaultOwner()
	}
	if what == actForceUnlock && v.live { // if not, the token may be one of somebody else
		end = func() error { return q.s.locks.Break(ctx, q.key, token, reason) }
	}
	if err := q.mayUnlock(own); err != nil {
		q.audit(what, q.key, token, err, "lock_id", rec.ID)
		return nil, err
	}
	err := q.s.endState(ctx, q.name, rec.Handle, end)
	over := err != nil && isOver(err)
	if over && (rec.Ending || what == actForceUnlock) {
		err = nil // it is as the client wants it
	}
	q.audit(what, q.key, token, err, "lock_id", rec.ID, "locked_by", rec.Principal)
	switch {
	case over && err != nil:
		p := lost(err)
		p.key = q.key
		return nil, p
	case err != nil:
		return nil, err
	}
	q.s.held.remove(rec.Principal, string(rec.Handle))
	q.s.watch.Ended(q.key, token, ended, reason)
	return unlocked, nil
}

// mayUnlock says whether the caller may end a lock of its own, or one of somebody else.
func (q *stateRequest) mayUnlock(own bool) error {
	if own && q.who.may(verbAcquire, q.key) == nil {
		return nil
	}
	return q.who.may(verbBreak, q.key)
}

// breakHolder ends a lock that was taken by other means than LOCK.
func (q *stateRequest) breakHolder(token fence.Token) (any, error) {
	if err := q.mayUnlock(false); err != nil {
		return nil, err
	}
	ctx, cancel := q.storing()
	defer cancel()
	reason := "force-unlock by " + q.defaultOwner()
	err := q.s.locks.Break(ctx, q.key, token, reason)
	q.audit(actForceUnlock, q.key, token, err)
	if err != nil && !errors.Is(err, fencelock.ErrNoClaim) {
		return nil, err
	}
	q.s.watch.Ended(q.key, token, watch.Broken, reason)
	return unlocked, nil
}
