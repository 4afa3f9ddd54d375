package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// Leave takes the claim of t out of its line, which wakes whoever watches its node.
// It costs one request, and a second one if others are in line and that is news. A claim
// that stood for a moment only is deleted and nothing else.
//
// If ctx ends first, or the connection breaks, the node is deleted behind as soon as
// there is a connection again, or ends with the session. An Enter of the same ID
// that is still under way is waited for. Only this Backend can have sent it, so the
// ID is kept out in its memory.
func (b *Backend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	if e.Linger > 0 {
		return &driver.PermanentError{Err: fmt.Errorf("zookeeper: a claim on %q cannot linger: the backend's Info says so", t.Key)}
	}
	r := ref{t.Key, t.ID}
	_, before := b.find(r)
	if t.Token == 0 {
		b.lay(r, goneLeft, t.TTL)
	}
	return failed(ctx, "leaving the line of", t.Key, b.leave(ctx, r, e, before))
}

func (b *Backend) leave(ctx context.Context, r ref, e driver.Exit, before *driver.ErrGone) error {
	p, err := b.take(ctx, r)
	if err != nil {
		return err
	}
	handed := false
	defer func() {
		if !handed {
			b.release(p)
		}
	}()
	conn, s, err := b.live(ctx)
	if err != nil {
		return err
	}
	if p.unsure != nil {
		x := &entry{b: b, p: p, c: driver.Claim{Key: r.key, ID: r.id, TTL: minTTL}, conn: conn, s: s}
		if _, err := x.resolve(ctx); err != nil {
			return err
		}
	}
	node, own, ok := b.inLine(p)
	if !ok {
		return b.leaveUnknown(ctx, conn, r, e, before)
	}
	if own != s {
		return errNoSession // its end is being noted
	}
	x := &removal{p: p, key: r.key, path: node}
	if e.Mark != "" {
		b.mu.Lock()
		granted := p.granted
		b.mu.Unlock()
		if !granted { // it may have become so since it was last looked at
			if _, _, _, err := b.standingOf(ctx, conn, driver.Claim{Key: r.key, ID: r.id}, p); err != nil {
				return err
			}
		}
		b.mu.Lock()
		granted = p.granted
		b.mu.Unlock()
		if granted {
			x.mark = write(markRecord{Format: format, ID: r.id, Mark: []byte(e.Mark)})
		}
	}
	finish := func(gone bool, err error) error {
		switch {
		case err == nil && gone:
			return b.deleted(b.work, conn, p, node)
		case err == nil:
			b.forget(p)
			return nil
		}
		// Nobody knows. It goes on behind, and whoever asks again is told then.
		b.mu.Lock()
		b.vacate(p, goneLeft)
		b.mu.Unlock()
		b.background(func(ctx context.Context) { b.bury(ctx, s, r.key, node) })
		return err
	}
	if x.mark != nil {
		// A mark must not be lost to a burial that writes none: the caller asks again.
		finish = func(gone bool, err error) error {
			switch {
			case err == nil && gone:
				if m, err := b.readMark(b.work, conn, r.key); err == nil && m.ID == r.id {
					b.forget(p)
					return nil // by an earlier try whose answer was lost
				}
				return b.deleted(b.work, conn, p, node)
			case err == nil:
				b.forget(p)
			}
			return err
		}
	}
	b.sendRemoval(conn, x)
	select {
	case a := <-x.sent:
		again, gone, err := b.removed(conn, x, a.t, a.err)
		if !again {
			return finish(gone, err)
		}
		gone, err = b.remove(ctx, conn, x)
		return finish(gone, err)
	case <-ctx.Done():
		err = ctx.Err()
	case <-b.closed:
		err = driver.ErrClosed
	}
	// The caller goes; the answer is still to come. It must not stop half way.
	handed = true
	go func() {
		_ = finish(b.remove(b.work, conn, x))
		b.release(p)
	}()
	return err
}

// leaveUnknown is Leave for a claim that this Backend has not in line: another one
// may have entered it, or it is a repeat.
func (b *Backend) leaveUnknown(ctx context.Context, conn client, r ref, e driver.Exit, before *driver.ErrGone) error {
	if _, err := conn.Sync(b.lineOf(r.key)).wait(ctx, b); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	f, err := b.seek(ctx, conn, r)
	if err != nil {
		return err
	}
	if f != nil {
		x := &removal{key: r.key, path: f.path}
		if e.Mark != "" {
			l, err := b.readLine(ctx, conn, r.key)
			if err != nil && !errors.Is(err, zk.ErrNoNode) {
				return err
			}
			if err == nil {
				if i := l.at(f.name); i >= 0 && stand(l.members, i).granted {
					x.mark = write(markRecord{Format: format, ID: r.id, Mark: []byte(e.Mark)})
				}
			}
		}
		gone, err := b.remove(ctx, conn, x)
		if err != nil || !gone {
			return err
		}
	}
	m, err := b.readMark(ctx, conn, r.key)
	if err != nil {
		return err
	}
	if m.ID == r.id {
		return nil
	}
	if before != nil {
		return *before
	}
	return driver.ErrGone{}
}

// removal is one node to be taken out of a line.
type removal struct {
	p    *place // nil for a node of others
	key  string
	path string
	mark []byte // to be written in the same step

	tries       int
	sent        future[[]zk.MultiResponse] // the answer to the last try
	alone, keep bool                       // of the last try: whether the container goes too, or stays for us
	bare        bool                       // of the last try: nothing was done but that
	version     int32                      // then: of the line, if it was empty but for p
}

// moment is for how long a claim stands, that leaves without a word to the line. Whoever
// looks at the line learns from the last change of it since when the next one holds, until
// that says so itself: no more than such moments too early.
const moment = 10 * time.Millisecond

// remove deletes a claim's node. The container of the last one stays for whoever comes
// back within a minute, and then the server clears it away; where too many lines are in
// use for that, it is deleted with the node. remove reports whether the node was not there.
// It does not repeat what may have been applied.
func (b *Backend) remove(ctx context.Context, conn client, x *removal) (gone bool, err error) {
	for {
		if x.sent == nil {
			b.sendRemoval(conn, x)
		}
		rs, err := x.sent.wait(ctx, b)
		again, gone, err := b.removed(conn, x, rs, err)
		if !again {
			return gone, err
		}
	}
}

func (b *Backend) sendRemoval(conn client, x *removal) {
	line := b.lineOf(x.key)
	x.alone, x.bare = x.mark == nil && x.tries == 0, false
	x.keep = x.mark == nil && b.keeps(x.key)
	if x.p != nil {
		b.mu.Lock()
		x.alone = x.alone && !x.p.shared
		x.bare, x.version = x.keep && time.Since(x.p.stood) < moment, x.p.version
		b.mu.Unlock()
	}
	x.alone = x.alone && !x.keep
	ops := []any{&zk.DeleteRequest{Path: x.path, Version: -1}}
	switch {
	case x.mark != nil && x.tries%2 == 0:
		ops = append(ops, &zk.SetDataRequest{Path: line + "/" + markName, Data: x.mark, Version: -1},
			&zk.SetDataRequest{Path: line, Version: -1})
	case x.mark != nil:
		ops = append(ops, &zk.CreateRequest{Path: line + "/" + markName, Data: x.mark, Acl: b.acl},
			&zk.SetDataRequest{Path: line, Version: -1})
	case x.alone:
		ops = append(ops, &zk.DeleteRequest{Path: line, Version: -1})
	case x.bare:
	default:
		ops = append(ops, &zk.SetDataRequest{Path: line, Version: -1})
	}
	x.tries++
	x.sent = conn.Multi(ops...)
}

// removed takes in the answer to a try. It says again if another one is worth it.
func (b *Backend) removed(conn client, x *removal, rs []zk.MultiResponse, err error) (again, gone bool, _ error) {
	x.sent = nil
	at := 0
	for at < len(rs) && rs[at].Error == nil {
		at++
	}
	switch {
	case err == nil:
		last := rs[len(rs)-1].Stat // of the line, after the node was deleted
		switch {
		case x.bare && x.version >= 0:
			b.learnEmpty(x.key, x.version) // whoever has joined since has made that another one
		case last != nil && last.NumChildren == 0 && x.keep:
			b.learnEmpty(x.key, last.Version)
		case last != nil && last.NumChildren == 0 && x.mark == nil:
			// The others went meanwhile. The server would clear it away by itself.
			conn.Delete(b.lineOf(x.key), -1)
			b.learn(x.key, false)
		case x.alone:
			b.learn(x.key, false)
		default:
			b.learn(x.key, true)
		}
		return false, false, nil
	case at == 0 && errors.Is(err, zk.ErrNoNode):
		return false, true, nil
	case errors.Is(err, zk.ErrNotEmpty), x.mark != nil && (errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNodeExists)):
		return true, false, nil
	}
	return false, false, err
}

// bury deletes a node of session s for good: it asks until it is answered, or the
// session is over and the node with it.
func (b *Backend) bury(ctx context.Context, s *session, key, node string) {
	for ctx.Err() == nil && !s.ended() {
		conn, now, err := b.connected(ctx)
		if err != nil || now != s {
			return // Close, or another session
		}
		if _, err = b.remove(ctx, conn, &removal{key: key, path: node}); err == nil || answered(err) {
			return
		}
		pause(ctx, s, retryEvery)
	}
}
