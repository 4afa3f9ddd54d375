package etcdlock

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/limit"
)

type keyValue = mvccpb.KeyValue

// format is the version of the records. Another version is refused.
const format = 1

// record is what the key of a claim holds. Its place in line is the revision that created
// the key, and its token comes from that revision (tokenOf).
type record struct {
	Format    int                 `json:"v"`
	ID        string              `json:"id"`
	Owner     string              `json:"owner,omitempty"`
	Note      string              `json:"note,omitempty"`
	Trace     string              `json:"trace,omitempty"`
	LockDelay driverutil.Duration `json:"lock_delay,omitempty"`
	Capacity  int64               `json:"capacity"`
	Weight    int64               `json:"weight"`
	Span      int64               `json:"span"`
	TTL       int64               `json:"ttl"`               // seconds, as granted
	Token     int64               `json:"token,omitempty"`   // drawn by the epoch of the line, instead of the revision
	Since     int64               `json:"since"`             // ms since 1970 by its process's clock of wait or hold
	Granted   bool                `json:"granted,omitempty"` // set once it had waited
	Lingering bool                `json:"lingering,omitempty"`
	Noticed   bool                `json:"noticed,omitempty"` // see notice.go
}

// token is the first token of the claim that the revision rev created.
func (r *record) token(rev int64) int64 { return cmp.Or(r.Token, tokenOf(rev)) }

// epoch gives the tokens of a line that has followed another store: each claim that joins the line writes
// it, and draws the next one. Without it the tokens of etcd, which come from revisions, would fall after those of
// a store that numbers by a clock.
type epoch struct {
	Format int   `json:"v"`
	Last   int64 `json:"last"` // the largest token drawn since
}

// tombstone keeps an ID out of the line.
type tombstone struct {
	Format int    `json:"v"`
	Broken bool   `json:"broken"`
	Reason string `json:"reason,omitempty"`
}

// markRecord is a line's mark, and the ID of the claim that wrote it.
type markRecord struct {
	Format int    `json:"v"`
	Mark   []byte `json:"mark"` // any bytes
	Writer string `json:"writer"`
}

// newRecord describes c, which begins to wait or to hold now.
func newRecord(c *driver.Claim, ttl time.Duration) record {
	return record{
		Format: format, ID: c.ID, Owner: c.Owner, Note: c.Note, Trace: c.Trace,
		LockDelay: driverutil.Duration(c.LockDelay), Capacity: c.Capacity, Weight: c.Weight, Span: c.Span,
		TTL: int64(ttl / time.Second), Since: time.Now().UnixMilli(),
	}
}

func (r *record) ttl() time.Duration { return time.Duration(r.TTL) * time.Second }

// left is how long r may last, for people: only the server knows. A claim that is held
// is renewed again and again, so it is the whole lease.
func (r *record) left() time.Duration {
	if !r.Lingering {
		return r.ttl()
	}
	return min(max(r.ttl()-time.Since(time.UnixMilli(r.Since)), time.Millisecond), r.ttl())
}

// encode writes a record of any kind.
func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain structs
	}
	return string(b)
}

// decode reads a record of any kind into v.
func decode(kv *keyValue, v any) error {
	var version struct {
		Format int `json:"v"`
	}
	err := json.Unmarshal(kv.Value, &version)
	if err == nil && version.Format == format {
		err = json.Unmarshal(kv.Value, v)
	}
	switch {
	case err != nil:
		return driver.Permanent(fmt.Errorf(
			"etcd: the key %q holds something else than a lock: give the locks another Prefix (%w)", kv.Key, err))

	case version.Format != format:
		return driver.Permanent(fmt.Errorf(
			"etcd: the key %q has format %d of another version of fencelock, and this one knows %d: "+
				"use one version for all programs that share the lock", kv.Key, version.Format, format))

	}
	if r, ok := v.(*record); ok {
		err = r.check()
	}
	if err != nil {
		return driver.Permanent(fmt.Errorf(
			"etcd: the key %q holds a damaged claim: %w; delete the key when its holder has ended", kv.Key, err))

	}
	return nil
}

// check refuses numbers that no Enter has written, before they decide who holds a lock:
// a weight below zero would make room where there is none.
func (r *record) check() error {
	switch {
	case r.Weight < 1 || r.Weight > r.Capacity || r.Capacity > driver.RW:
		return fmt.Errorf("its weight is %d of %d", r.Weight, r.Capacity)
	case r.Span < 1 || r.Span > limit.Span:
		return fmt.Errorf("its span is %d", r.Span)
	case r.TTL < 0 || r.TTL > int64(math.MaxInt64/time.Second):
		return fmt.Errorf("its lease is %d s", r.TTL)
	}
	return nil
}

// withID finds the claim with that ID among kvs, or nil.
func withID(kvs []*keyValue, id string) *keyValue {
	for _, kv := range kvs {
		var r struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(kv.Value, &r) == nil && r.ID == id {
			return kv
		}
	}
	return nil
}

// found is what operation op of a transaction has read.
func found(answer *clientv3.TxnResponse, op int) []*keyValue {
	return answer.Responses[op].GetResponseRange().Kvs
}

// first is the oldest of kvs, or nil.
func first(kvs []*keyValue) (oldest *keyValue) {
	for _, kv := range kvs {
		if oldest == nil || kv.CreateRevision < oldest.CreateRevision {
			oldest = kv
		}
	}
	return oldest
}

// tokenOf is the first token of the claim that the revision rev created. There are
// 65536 to a revision, so spans of different claims never meet.
func tokenOf(rev int64) int64 { return rev << 16 }

// revisionOf is the revision that created the claim with this token.
func revisionOf(token int64) int64 { return token >> 16 }
