package httplock

import (
	"crypto/sha256"
	"encoding/base32"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/note"
)

// A request_id is for one wish, at all Servers. One store tells wishes apart by the ID, the
// capacity and the weight of a claim. To these belong what the store does not know:
//
//   - once is for an exclusive lock, as acquire is. Its claim has an ID of its own, which is
//     derived from that of acquire.
//   - A store that cannot pass leases on has claims of one request under several IDs. The note of
//     each claim names the request.

// claimID is the ID under which the store has the claim of w.
func (w *want) claimID() string {
	if w.slot == nil {
		return w.id
	}
	return onceID(w.id)
}

func onceID(id string) string {
	h := sha256.Sum256([]byte("once " + id))
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h[:16])
}

// wishOf returns what a claim in line is for, if the request of w has made it.
func (w *want) wishOf(c *fencelock.Standing) (wish, bool) {
	n := note.Parse(c.Note)
	of := wish{c.Kind, c.Permits, c.Size, n.Slot}
	switch {
	case w.kept:
		return of, n.Request == driverutil.ShortID(w.id)
	case c.ID == driverutil.ShortID(w.id):
		of.slot = nil // whatever the client has written
		return of, true
	}
	return of, c.ID == driverutil.ShortID(onceID(w.id)) && of.slot != nil
}

// checkReuse returns an error if the first of claims that the request of w has made is for
// something else than w.
func (s *Server) checkReuse(w *want, claims []fencelock.Standing) error {
	for _, c := range claims {
		of, ok := w.wishOf(&c)
		switch {
		case !ok:
		case w.isAs(&of):
			return nil
		default:
			s.asked.forget(w)
			return reused().about(w)
		}
	}
	return nil
}
