package etcdlock

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/etcdlock/internal/reply"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// keysPerPage is how many keys Lines reads at once.
const keysPerPage = 500

// Ping reads one key below the prefix. It fails if the server cannot be reached, and if
// the user may not read there. It costs one request.
func (b *Backend) Ping(ctx context.Context) error {
	return b.call(ctx, reply.Read, "reading keys that begin with", b.prefix, func(ctx context.Context) error {
		_, err := b.etcd.Get(ctx, b.prefix, clientv3.WithCountOnly())
		return err
	})
}

// Line describes the line of key, also if it is empty. It costs one read, and one
// request for each lease in it. Last is 0 unless the line has followed another
// store: the store's revision is above all other tokens, so no token needs to be remembered.
func (b *Backend) Line(ctx context.Context, key string) (l driver.Line, err error) {
	err = b.call(ctx, reply.Read, "reading the line of", key, func(ctx context.Context) error {
		all := b.line(key).all()
		answer, err := b.etcd.Get(ctx, all.from, clientv3.WithRange(all.end))
		if err == nil {
			r := lineReader{b, make(map[int64]time.Duration)}
			l, err = r.describe(ctx, key, answer.Kvs)
		}
		return err
	})
	return l, err
}

// Lines yields the lines with at least one claim whose keys begin with prefix. It
// costs two reads for every 500 claims, and one request for each lease.
func (b *Backend) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		r, from := lineReader{b, make(map[int64]time.Duration)}, b.prefix+plain.Escape(prefix)
		for end := clientv3.GetPrefixRangeEnd(from); from != ""; {
			var lines []driver.Line
			// No call is under way while the caller has a line: it may even call Close.
			const doing = "listing the locks that begin with"
			err := b.call(ctx, reply.Read, doing, prefix, func(ctx context.Context) (err error) {
				lines, from, err = r.page(ctx, from, end)
				return cmp.Or(err, ctx.Err())
			})
			if err != nil {
				yield(driver.Line{}, err)
				return
			}
			for _, l := range lines {
				if !yield(l, nil) {
					return
				}
			}
		}
	}
}

// lineReader describes lines. It remembers how long each lease lasts.
type lineReader struct {
	b    *Backend
	left map[int64]time.Duration // by lease ID; 0 if the lease has ended
}

// page reads up to keysPerPage keys, and all keys of the line that the page ends in. It
// returns the lines with claims, and where the next page begins: "" after the last page.
func (r *lineReader) page(ctx context.Context, from, end string) (lines []driver.Line, next string, err error) {
	page, err := r.b.etcd.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(keysPerPage))
	if err != nil {
		return nil, "", err
	}
	byLine, last := make(map[string][]*keyValue), ""
	for _, kv := range page.Kvs {
		if key, ours := r.b.parseKey(string(kv.Key)); ours {
			byLine[key], last = append(byLine[key], kv), key
		}
		next = string(kv.Key) + "\x00"
	}
	if !page.More {
		next = ""
	} else if last != "" {
		all := r.b.line(last).all()
		whole, err := r.b.etcd.Get(ctx, all.from, clientv3.WithRange(all.end))
		if err != nil {
			return nil, "", err
		}
		byLine[last], next = whole.Kvs, max(next, all.end)
	}
	for key, keys := range byLine {
		l, err := r.describe(ctx, key, keys)
		if err != nil {
			return nil, "", err
		}
		if len(l.Claims) > 0 {
			lines = append(lines, l)
		}
	}
	return lines, next, nil
}

// describe describes the line that has these keys.
func (r *lineReader) describe(ctx context.Context, key string, keys []*keyValue) (driver.Line, error) {
	d := driver.Line{Key: key}
	var claims []*keyValue
	for _, kv := range keys {
		switch r.b.line(key).class(kv) {
		case classMark:
			var m markRecord
			if err := decode(kv, &m); err != nil {
				return d, err
			}
			d.Mark = string(m.Mark)
		case classEpoch:
			var e epoch
			if err := decode(kv, &e); err != nil {
				return d, err
			}
			d.Last = e.Last
		case classPermit, classReader, classWriter:
			claims = append(claims, kv)
		}
	}
	slices.SortFunc(claims, func(a, b *keyValue) int { return int(a.CreateRevision - b.CreateRevision) })
	sum := int64(0)
	for _, kv := range claims {
		var c record
		if err := decode(kv, &c); err != nil {
			return d, err
		}
		left, err := r.leaseLeft(ctx, kv.Lease)
		if err != nil {
			return d, err
		}
		if kv.Lease == 0 {
			left = c.ttl() // put by hand, as a restored copy is: only Break ends it
		}
		left = c.asOf(left)
		if left <= 0 {
			continue // it ended since the line was read
		}
		sum += c.Weight
		d.Claims = append(d.Claims, driver.Standing{
			Claim: driver.Claim{
				ID:        driverutil.ShortID(c.ID),
				Owner:     c.Owner,
				Note:      c.Note,
				Trace:     c.Trace,
				LockDelay: time.Duration(c.LockDelay),
				Capacity:  c.Capacity,
				Weight:    c.Weight,
				Span:      c.Span,
			},
			Token:     c.token(kv.CreateRevision),
			Granted:   sum <= c.Capacity,
			Lingering: c.Lingering,
			Since:     time.UnixMilli(c.Since),
			Left:      left,
			Reason:    c.reasonIn(r.b.line(key), keys),
		})
	}
	return d, nil
}

// leaseLeft asks how long a lease lasts, unless that is known. It is 0 if the lease has ended.
func (r *lineReader) leaseLeft(ctx context.Context, id int64) (time.Duration, error) {
	left, known := r.left[id]
	if known || id == 0 {
		return left, nil
	}
	answer, err := r.b.etcd.TimeToLive(ctx, clientv3.LeaseID(id))
	if err == nil && answer.GrantedTTL > 0 {
		// The server tells whole seconds, rounded down. Until it has ended a lease, the
		// claims on it are in line.
		left = time.Duration(max(answer.TTL, 0))*time.Second + time.Second/2
	}
	r.left[id] = left
	return left, err
}
