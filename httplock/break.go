package httplock

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/limit"
)

func (s *Server) breakClaim(c *call) (any, error) {
	var q struct {
		Key    string      `json:"key"`
		Token  fence.Token `json:"token"`
		Reason string      `json:"reason"`
		Notice *duration   `json:"notice"`
		Delay  *duration   `json:"delay"`
	}
	if err := c.read(&q); err != nil {
		return nil, err
	}
	if err := checkKey(q.Key, limit.Key); err != nil {
		return nil, err
	}
	if err := c.who.may(verbBreak, q.Key); err != nil {
		return nil, err
	}
	switch {
	case q.Token == 0:
		return nil, invalid("The token is missing; want that of the claim to end, as line shows it.")
	case strings.TrimSpace(q.Reason) == "":
		return nil, invalid("The reason is missing; the holder and the audit log get it.")
	case q.Delay != nil && *q.Delay < 0:
		return nil, invalid("The delay is %v; it must not be negative.", time.Duration(*q.Delay))
	case q.Notice != nil && *q.Notice <= 0:
		return nil, invalid("The notice is %v; leave it out to end the claim now.", time.Duration(*q.Notice))
	}
	how := fencelock.Break{Reason: q.Reason} // with the delay of the lease, if it has one
	if q.Delay != nil {
		how.Delay = cmp.Or(time.Duration(*q.Delay), -1)
	}
	answer := map[string]any{"key": q.Key, "token": q.Token, "broken": true}
	if q.Notice != nil {
		how.Notice = time.Duration(*q.Notice)
		answer["notice_ms"] = how.Notice.Milliseconds()
	}
	err := s.locks.Break(c.Context(), q.Key, q.Token, how)
	c.auditBreak(q.Key, q.Token, how, err)
	if errors.Is(err, fencelock.ErrNoClaim) {
		return nil, &problem{slug: slugNoClaim, key: q.Key, detail: "No claim has this token, so nothing was changed."}
	}
	if err != nil {
		return nil, err
	}
	s.watch.Broke(q.Key, q.Token, how)
	return answer, nil
}

// auditBreak notes a break in the audit log.
func (c *call) auditBreak(key string, token fence.Token, how fencelock.Break, err error) {
	c.audit("break", key, token, err, "reason", how.Reason, "notice_ms", how.Notice.Milliseconds())
}
