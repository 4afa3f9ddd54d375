package etcdlock

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

// pageSize is how many keys are read at once.
const pageSize = 500

// Line describes the line of key, also when nobody is in it. It costs one read, and
// one request for each lease in it. Last is 0: nothing is remembered of tokens, for
// the store's revision is above all of them.
func (b *Backend) Line(ctx context.Context, key string) (driver.Line, error) {
	ctx, end, err := b.begin(ctx)
	if err != nil {
		return driver.Line{}, err
	}
	defer end()
	whole := b.line(key).whole()
	answer, err := b.etcd.Get(ctx, whole.from, clientv3.WithRange(whole.to))
	if err != nil {
		return driver.Line{}, b.explain(ctx, "reading the line of", key, rightToRead, err)
	}
	l, err := b.look(ctx, key, answer.Kvs, &lives{})
	return l, b.explain(ctx, "reading the line of", key, rightToRead, err)
}

// Ping reads one key below the prefix. It fails if the server cannot be reached, and if
// the user may not read there. It costs one request.
func (b *Backend) Ping(ctx context.Context) error {
	ctx, end, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	_, err = b.etcd.Get(ctx, b.prefix, clientv3.WithCountOnly())
	return b.explain(ctx, "reading keys that begin with", b.prefix, rightToRead, err)
}

// Lines yields the lines with at least one claim whose keys begin with prefix. It
// costs one read for every 500 claims, and one request for each lease.
func (b *Backend) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		p := pages{b: b, from: b.prefix + letters.Escape(prefix)}
		p.to = clientv3.GetPrefixRangeEnd(p.from)
		for more := true; more; {
			var lines []driver.Line
			var err error
			// Nothing is under way while the caller has a line: it may even call Close.
			if lines, more, err = p.next(ctx); err != nil {
				yield(driver.Line{}, b.explain(ctx, "listing the locks that begin with", prefix, rightToRead, err))
				return
			}
			for _, l := range lines {
				if !yield(l, nil) {
					return
				}
			}
		}
		if err := ctx.Err(); err != nil {
			yield(driver.Line{}, b.explain(ctx, "listing the locks that begin with", prefix, rightToRead, err))
		}
	}
}

// pages reads lines page by page, all as of one moment.
type pages struct {
	b        *Backend
	from, to string
	rev      int64
	known    lives

	key string      // the line that the last page ended in
	kvs []*keyValue // what it had of it
}

// next reads one more page, and returns the lines that end in it.
func (p *pages) next(ctx context.Context) (lines []driver.Line, more bool, err error) {
	ctx, end, err := p.b.begin(ctx)
	if err != nil {
		return nil, false, err
	}
	defer end()
	answer, err := p.b.etcd.Get(ctx, p.from, clientv3.WithRange(p.to), clientv3.WithLimit(pageSize), clientv3.WithRev(p.rev))
	if errors.Is(err, rpctypes.ErrCompacted) {
		p.rev = 0 // somebody compacted meanwhile: the rest is as of now
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	finish := func() error {
		l, err := p.b.look(ctx, p.key, p.kvs, &p.known)
		if err == nil && len(l.Claims) > 0 {
			lines = append(lines, l)
		}
		return err
	}
	p.rev = answer.Header.Revision
	for _, kv := range answer.Kvs {
		key, _, _, ok := p.b.split(string(kv.Key))
		if !ok {
			continue // nothing of ours
		}
		if key != p.key {
			if err := finish(); err != nil {
				return nil, false, err
			}
			p.key, p.kvs = key, nil
		}
		p.kvs = append(p.kvs, kv)
	}
	if answer.More {
		p.from = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
		return lines, true, nil
	}
	return lines, false, finish()
}

// look describes one line.
func (b *Backend) look(ctx context.Context, key string, kvs []*keyValue, known *lives) (driver.Line, error) {
	d := driver.Line{Key: key}
	var claims []*keyValue
	for _, kv := range kvs {
		switch _, class, _, _ := b.split(string(kv.Key)); class {
		case classMark:
			var m markRecord
			if err := decode(kv, &m); err != nil {
				return d, err
			}
			d.Mark = driver.Mark(m.Mark)
		case classPermit, classReader, classWriter:
			claims = append(claims, kv)
		}
	}
	if err := known.ask(ctx, b, claims); err != nil {
		return d, err
	}
	slices.SortFunc(claims, byAge)
	sum := int64(0)
	for _, kv := range claims {
		var r record
		if err := decode(kv, &r); err != nil {
			return d, err
		}
		left := known.left[kv.Lease]
		if kv.Lease == 0 {
			left = r.ttl() // put by hand, as a restored copy is: nothing ends it but Break
		}
		if left <= 0 {
			continue // it ended since the line was read
		}
		sum += r.Weight
		d.Claims = append(d.Claims, driver.Standing{
			ID: driver.ShortID(r.ID), Owner: r.Owner, Note: r.Note, Capacity: r.Capacity, Weight: r.Weight,
			Token: tokenOf(kv.CreateRevision), Span: r.Span, Granted: sum <= r.Capacity, Lingering: r.Lingering,
			Since: time.UnixMilli(r.Since), Left: left,
		})
	}
	return d, nil
}

// lives remembers how long leases last, for one look.
type lives struct{ left map[int64]time.Duration }

// ask finds out about the leases of claims that are not known yet.
func (k *lives) ask(ctx context.Context, b *Backend, claims []*keyValue) error {
	if k.left == nil {
		k.left = make(map[int64]time.Duration)
	}
	var mu sync.Mutex
	var failed error
	var group sync.WaitGroup
	slots := make(chan struct{}, 16)
	for _, kv := range claims {
		mu.Lock()
		_, known := k.left[kv.Lease]
		k.left[kv.Lease] = max(k.left[kv.Lease], 0)
		mu.Unlock()
		if known || kv.Lease == 0 {
			continue
		}
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			answer, err := b.etcd.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			if answer.GrantedTTL > 0 {
				// The server tells whole seconds, rounded down. Until it has ended a lease, the
				// claims of it are in line.
				k.left[kv.Lease] = time.Duration(max(answer.TTL, 0))*time.Second + time.Second/2
			}
		})
	}
	group.Wait()
	return failed
}
