package httplock

import (
	"context"
	"log/slog"

	"github.com/fencelock/fencelock/fence"
)

// audit writes down that the caller has changed something, or failed to. more are names and
// values.
func (c *call) audit(what, key string, token fence.Token, err error, more ...any) {
	log := c.s.o.Audit
	if log == nil {
		return
	}
	result, level := "ok", slog.LevelInfo
	if err != nil {
		result = problemOf(err).slug
	}
	if what == actRenew && err == nil {
		level = slog.LevelDebug // it changes nothing that others see
	}
	attrs := []any{
		"who", c.who.name, "from", c.RemoteAddr, "what", what, "key", key, "token", token.String(), "result", result,
	}
	log.Log(context.WithoutCancel(c.Context()), level, "audit", append(attrs, more...)...)
}

// What an audit record says under "what", beside break.
const (
	actAcquire = "acquire"
	actOnce    = "once"
	actRenew   = "renew"
	actRelease = "release"
	actDone    = "done"
	actLeave   = "leave"
	actGone    = "gone" // the client of a waiting claim closed its connection
)
