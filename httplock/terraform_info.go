package httplock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// lockInfo is what a client of Terraform's http backend says about its lock.
type lockInfo struct {
	ID        string
	Operation string
	Who       string
	raw       json.RawMessage
}

// maxLockID is the length of the longest ID of a lock, in bytes. Clients draw UUIDs.
const maxLockID = 256

// readInfo reads the body of LOCK or UNLOCK. Later versions may say more than we know.
func (q *stateRequest) readInfo() (*lockInfo, error) {
	raw, err := q.readBytes(maxBody)
	if err != nil {
		return nil, err
	}
	info := &lockInfo{raw: raw}
	if len(raw) == 0 {
		return info, nil
	}
	fields := map[string]any{}
	if err := errors.Join(json.Unmarshal(raw, &fields), json.Unmarshal(raw, info)); err != nil {
		return nil, invalid("The lock's info is not a JSON object of text.")
	}
	if len(info.ID) > maxLockID || strings.ContainsFunc(info.ID, func(r rune) bool { return r < ' ' }) {
		return nil, invalid("The lock's ID has more than %d bytes, or control characters.", maxLockID)
	}
	return info, nil
}

// readBytes reads a body of at most limit bytes.
func (q *stateRequest) readBytes(limit int64) ([]byte, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(q.w, q.Body, limit))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, &problem{slug: slugTooLarge, key: q.key,
			detail: fmt.Sprintf("The body has more than %d bytes.", limit)}
	case err != nil:
		q.w.Header().Set("Connection", "close")
		return nil, invalid("The body did not arrive in time.")
	}
	_ = q.out.SetReadDeadline(time.Time{}) // the answer may take longer
	return raw, nil
}

// whole reports whether the client knows more of its lock than the ID: it is no force-unlock.
func (i *lockInfo) whole() bool { return i.Operation != "" || i.Who != "" }

// owner is who holds the lock, in lines.
func (i *lockInfo) owner() string { return clip(i.Who, driver.MaxOwner) }

// note is what lines say beside the owner.
func (i *lockInfo) note() string {
	operation := strings.ToLower(strings.TrimPrefix(i.Operation, "OperationType"))
	return clip(strings.TrimPrefix(operation+", lock ID "+i.ID, ", "), driver.MaxNote)
}

// clip makes s one line of text of at most limit bytes.
func clip(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	for len(s) > limit {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

// stateRefused is the answer 423 with the info of a lock. A client tries again unless its ID is
// empty.
type stateRefused struct{ info map[string]any }

func (r *stateRefused) Error() string { return fmt.Sprint("the state is locked: ", r.info["Info"]) }

// refused says who has locked the state, after err was the answer of the store. It may turn
// out that it is the same client, whose other LOCK was faster.
func (q *stateRequest) refused(info *lockInfo, err error) (*StateLock, error) {
	if p := new(problem); !errors.As(err, &p) || p.slug != slugNotAcquired {
		return nil, err
	}
	v, lookErr := q.look()
	if lookErr != nil {
		return nil, lookErr
	}
	if v.rec.isFor(info, q.who) && v.live {
		return &v.rec, q.extend(&v.rec)
	}
	return nil, &stateRefused{v.holder(q.key)}
}

// holderID is the ID that force-unlock takes.
func (v *stateView) holderID() string {
	if v.live || len(v.line.Holders) == 0 {
		return v.rec.ID
	}
	return strangerID(&v.line.Holders[0])
}

// strangerID stands for the lock of one that is no client of Terraform.
func strangerID(s *fencelock.Standing) string { return "token-" + s.Token.String() }

// holder describes who has locked the state, as the client of Terraform shows it.
func (v *stateView) holder(key string) map[string]any {
	said := map[string]any{}
	if v.live {
		_ = json.Unmarshal(v.rec.Info, &said) // LOCK has read it
	}
	info := map[string]any{"ID": v.holderID()}
	set := func(name, value string) {
		info[name] = value
		if s, _ := said[name].(string); s != "" {
			info[name] = s
		}
	}
	set("Operation", "")
	set("Version", "")
	set("Path", key)
	if len(v.line.Holders) == 0 {
		set("Info", "The lock has ended this moment; try again.")
		info["ID"] = "ended"
		return info
	}
	h := &v.line.Holders[0]
	set("Who", h.Owner)
	set("Created", h.Since.UTC().Format(time.RFC3339Nano))
	set("Info", v.about(h))
	return info
}

// about says what the client of Terraform does not know of a holder.
func (v *stateView) about(h *fencelock.Standing) string {
	var parts []string
	if !v.live {
		parts = append(parts, "held by other means than Terraform")
		if h.Note != "" {
			parts = append(parts, "note "+h.Note)
		}
	}
	if v.rec.Principal != "" && v.live {
		parts = append(parts, "locked with the token of "+v.rec.Principal)
	}
	if n := len(v.line.Waiters); n > 0 {
		parts = append(parts, fmt.Sprintf("%d waiting", n))
	}
	if !v.live || v.rec.TTL > 0 {
		parts = append(parts, fmt.Sprintf("ends in %v unless renewed", h.Left.Round(time.Second)))
	}
	return strings.Join(append(parts, "fencing token "+h.Token.String()), ", ")
}
