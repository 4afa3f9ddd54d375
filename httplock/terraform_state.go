package httplock

import (
	"crypto/md5"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/fence"
)

// MaxState is the size of the largest state, in bytes.
const MaxState = 64 << 20

// stateTimeout is how long a state may take to arrive.
const stateTimeout = 2 * time.Minute

// get answers GET.
func (q *stateRequest) get() (any, error) {
	ctx, cancel := q.storing()
	defer cancel()
	state, err := q.states.State(ctx, q.name)
	if errors.Is(err, ErrNoState) {
		return nil, &problem{slug: slugNotFound, key: q.key, detail: "There is no state of this name yet."}
	}
	if err != nil {
		return nil, q.fileError("read", err)
	}
	return text{"application/json", string(state)}, nil
}

// put answers POST and PUT.
func (q *stateRequest) put() (any, error) {
	return q.write(actState, func() ([]byte, error) {
		_ = q.out.SetReadDeadline(time.Now().Add(stateTimeout))
		state, err := q.readBytes(MaxState)
		if err == nil {
			err = q.checkState(state)
		}
		return state, err
	})
}

// remove answers DELETE.
func (q *stateRequest) remove() (any, error) {
	return q.write(actStateDelete, func() ([]byte, error) { return nil, nil })
}

// write replaces the state by what read returns. Without the ID of a lock it locks the state
// for itself.
func (q *stateRequest) write(what string, read func() ([]byte, error)) (any, error) {
	if q.id == "" {
		mine, err := q.take(&lockInfo{ID: "write-" + rand.Text(), Operation: "write without a lock"}, stateGrace)
		if err != nil {
			return nil, err
		}
		defer q.giveUp(mine)
		q.id = mine.ID
	}
	if _, err := q.mayWrite(); err != nil { // before it takes the trouble to read
		return nil, err
	}
	state, err := read()
	if err != nil {
		return nil, err
	}
	var token fence.Token
	body, err := q.again(func() (any, error) {
		v, err := q.mayWrite()
		if err != nil {
			return nil, err
		}
		token = v.rec.Handle.Token()
		return unlocked, q.tryWrite(v, state)
	})
	q.audit(what, q.key, token, err, "lock_id", q.id, "bytes", len(state))
	return body, err
}

func (q *stateRequest) tryWrite(v *stateView, state []byte) error {
	ctx, cancel := q.storing()
	defer cancel()
	return q.fileError("write", q.states.SetState(ctx, q.name, state, v.version))
}

// mayWrite refuses a write that is not of the holder. A lease that is live when the record has
// been read is the last one as long as the record has this version.
func (q *stateRequest) mayWrite() (*stateView, error) {
	v, err := q.look()
	if err != nil {
		return nil, err
	}
	held := len(v.line.Holders) > 0
	switch {
	case v.rec.ID == q.id && !v.rec.Ending && v.live && v.rec.Principal == q.who.name:
		return v, nil
	case v.rec.ID == q.id && !v.rec.Ending && v.live:
		return nil, &problem{slug: slugForbidden, key: q.key, detail: "The lock was taken with another token."}
	case held && v.rec.ID != q.id:
		return nil, &problem{slug: slugNotAcquired, key: q.key,
			detail: fmt.Sprintf("The state is locked under another ID, %q; nothing was written.", v.holderID())}
	}
	return nil, &problem{slug: slugLost, key: q.key,
		more:   map[string]any{"reason": "the lock has ended: unlocked, broken, or its ttl is over"},
		detail: "The lock with this ID has ended, so nothing was written. Lock the state again, and look at it first."}
}

// stateHead is what states of Terraform and OpenTofu begin with, encrypted ones too.
type stateHead struct {
	Lineage string `json:"lineage"`
	Serial  uint64 `json:"serial"`
}

// checkState refuses a body that was cut off, that is no state, or that is older than the
// state, or has another history.
func (q *stateRequest) checkState(state []byte) error {
	if want := q.Header.Get("Content-MD5"); want != "" {
		sum := md5.Sum(state)
		if got := base64.StdEncoding.EncodeToString(sum[:]); got != want {
			return invalid("The body is damaged: its MD5 is %s, and Content-MD5 says %s.", got, want)
		}
	}
	var next, last stateHead
	if err := json.Unmarshal(state, &next); err != nil {
		return invalid("The state is not a JSON object.")
	}
	ctx, cancel := q.storing()
	defer cancel()
	old, err := q.states.State(ctx, q.name)
	switch {
	case errors.Is(err, ErrNoState) || q.force:
		return nil
	case err != nil:
		return q.fileError("read", err)
	case json.Unmarshal(old, &last) != nil:
		return nil
	case last.Lineage != "" && next.Lineage != last.Lineage:
		return invalid("The state has another lineage, %q, than the one that is here, %q. "+
			"To replace it all the same, add ?force=true to the address.", next.Lineage, last.Lineage)
	case next.Serial < last.Serial:
		return invalid("The state has serial %d, and the one that is here has %d. "+
			"To replace it all the same, add ?force=true to the address.", next.Serial, last.Serial)
	}
	return nil
}
