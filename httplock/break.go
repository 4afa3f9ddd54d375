package httplock

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/httplock/internal/watch"
)

func (s *Server) breakClaim(c *call) (any, error) {
	var q struct {
		Key    string      `json:"key"`
		Token  fence.Token `json:"token"`
		Reason string      `json:"reason"`
		Delay  *duration   `json:"delay"`
	}
	if err := c.read(&q); err != nil {
		return nil, err
	}
	if err := checkKey(q.Key, driver.MaxKey); err != nil {
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
	}
	delay := time.Duration(0) // that of the lease, if it has one
	if q.Delay != nil {
		delay = cmp.Or(time.Duration(*q.Delay), -1)
	}
	err := s.locks.Break(c.Context(), q.Key, q.Token, q.Reason, delay)
	c.audit("break", q.Key, q.Token, err, "reason", q.Reason)
	if errors.Is(err, fencelock.ErrNoClaim) {
		return nil, &problem{slug: slugNoClaim, key: q.Key, detail: "No claim has this token, so nothing was changed."}
	}
	if err != nil {
		return nil, err
	}
	s.watch.Ended(q.Key, q.Token, watch.Broken, q.Reason)
	return map[string]any{"key": q.Key, "token": q.Token, "broken": true}, nil
}
