package httplock

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"net"
	"regexp"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/limit"
	"github.com/fencelock/fencelock/internal/note"
)

// acquireRequest is the body of /v1/acquire and /v1/once.
type acquireRequest struct {
	Key       string    `json:"key"`
	TTL       *duration `json:"ttl"`
	Wait      duration  `json:"wait"`
	Stay      bool      `json:"stay"`
	Note      string    `json:"note"`
	Owner     string    `json:"owner"`
	RequestID string    `json:"request_id"`
}

// want is a lock that a client asks for.
type want struct {
	acquireRequest
	wish
	ttl, wait time.Duration
	id        string // of the request, at every Server
	kept      bool   // the store cannot pass the lease on, so it does not know the claim by its ID
	named     bool   // the client has drawn the request_id, and may repeat the request
}

// maxTTL keeps a forgotten lock from being one forever.
const maxTTL = 7 * 24 * time.Hour

// maxNote leaves room for what a Server writes into the note of a claim.
const maxNote = limit.Note - 64

var requestID = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

// want checks what q asks for.
func (c *call) want(q *acquireRequest) (*want, error) {
	w := &want{acquireRequest: *q, ttl: fencelock.DefaultTTL, wait: time.Duration(q.Wait)}
	w.kind = "exclusive"
	if q.TTL != nil {
		w.ttl = time.Duration(*q.TTL)
	}
	if err := checkKey(q.Key, MaxKey); err != nil {
		return nil, err
	}
	switch {
	case w.ttl < time.Millisecond || w.ttl > maxTTL:
		return nil, invalid("The ttl is %v; want at least 1ms and at most %v.", w.ttl, maxTTL)
	case w.wait < 0 || w.wait > MaxWait:
		return nil, invalid("The wait is %v; want 0s to %v. To wait longer, send stay and come again.", w.wait, MaxWait)
	case q.Stay && w.wait == 0:
		return nil, invalid("Stay keeps a place in line, so wait must be positive.")
	case q.Stay && q.RequestID == "":
		return nil, invalid("Stay keeps a place for the same request_id, so send one.")
	case len(q.Note) > maxNote:
		return nil, invalid("The note has %d bytes; at most %d.", len(q.Note), maxNote)
	case q.RequestID != "" && !requestID.MatchString(q.RequestID):
		return nil, invalid("The request_id is not 8 to 64 of the characters A-Z, a-z, 0-9, dot, dash, underscore.")
	}
	if err := c.who.may(verbAcquire, q.Key); err != nil {
		return nil, err
	}
	w.RequestID, w.named = cmp.Or(q.RequestID, rand.Text()), q.RequestID != ""
	w.Owner = cmp.Or(q.Owner, c.defaultOwner())
	w.id, w.kept = c.who.claimID(q.Key, w.RequestID), !c.s.detaches()
	return w, nil
}

// claimID is the ID of the claim that a request of p is for, at every Server. Others cannot
// guess it: it has the token of p in it, or the client has drawn the request_id.
func (p *principal) claimID(key, request string) string {
	h := sha256.New()
	for _, part := range []string{"fencelock", p.name, string(p.hash), key, request} {
		var size [2]byte
		size[0], size[1] = byte(len(part)>>8), byte(len(part))
		h.Write(size[:])
		h.Write([]byte(part))
	}
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)[:16])
}

func (c *call) defaultOwner() string {
	host, _, err := net.SplitHostPort(c.RemoteAddr)
	if err != nil {
		host = c.RemoteAddr
	}
	return cmp.Or(c.who.name, "http") + "@" + host
}

// options are those of a call for w.
func (w *want) options() []fencelock.Option {
	n := note.Note{Slot: w.slot, Text: w.Note}
	if w.kept {
		n.Request = driverutil.ShortID(w.id)
	}
	return []fencelock.Option{
		fencelock.NoRenewal(), fencelock.TTL(w.ttl), fencelock.Note(n.String()), fencelock.Owner(w.Owner),
	}
}

// lock takes what w asks for.
func (w *want) lock(ctx context.Context, locks *fencelock.Client, more ...fencelock.Option) (*fencelock.Lease, error) {
	opts := append(w.options(), more...)
	switch w.kind {
	case "shared":
		return locks.RLock(ctx, w.Key, opts...)
	case "permits":
		return locks.Acquire(ctx, w.Key, w.permits, w.size, opts...)
	}
	return locks.Lock(ctx, w.Key, opts...)
}
