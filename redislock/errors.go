package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/redislock/internal/reply"
)

const adviceReplica = "locks on a replica that takes writes do not exclude those on its master: connect to the " +
	"master, and set replica-read-only to yes"

// answered explains the error of a command. A copy of it that was sent before may have been
// applied.
func (b *Backend) answered(ctx context.Context, doing, key string, got *request) error {
	err := b.failed(ctx, doing, key, got.err)
	if got.repeated {
		return driverutil.Unsettled(err)
	}
	return err
}

// failed explains an error of one request. Passwords are in none: neither the
// server's answers nor go-redis' errors have them.
func (b *Backend) failed(ctx context.Context, doing, key string, err error) error {
	if ended := driverutil.Ended(ctx); ended != nil && (isTimeout(err) || errors.Is(err, context.Canceled)) {
		err = ended
	}
	what := fmt.Sprintf("redis: %s %q", doing, key)
	if strings.Contains(reply.Text(err), replicaText) {
		told := fmt.Errorf("%s: %s (%w)", what, adviceReplica, err)
		if b.transport.role.wasMaster() {
			return driver.Refused(told) // a failover
		}
		return driver.Permanent(told)
	}
	return reply.Explain(what, b.transport.cluster == nil, err)
}

// parseGone reads what gone in script/claim.lua answers.
func parseGone(answer string) driver.GoneError {
	switch {
	case strings.HasPrefix(answer, "xb"), strings.HasPrefix(answer, "xn"):
		return driver.GoneError{Reason: answer[2:], Broken: true}
	case strings.HasPrefix(answer, "xl"):
		return driver.GoneError{Reason: "it has left"}
	case strings.HasPrefix(answer, "xa"):
		return driverutil.Adopted
	}
	return driver.GoneError{}
}

// parseNotice reads how long a claim under notice has in µs, and why.
func parseNotice(s string) (gone driver.GoneError, ok bool) {
	f := fields{rest: s}
	gone.Broken, gone.Left = true, f.duration()
	gone.Reason = f.rest
	return gone, !f.bad && gone.Left > 0
}

// badAnswer is for an answer that no script of this version gives.
func badAnswer(doing, key string, answer any) error {
	return fmt.Errorf("redis: %s %q: the server gave an answer that makes no sense: %.100q",
		doing, key, fmt.Sprint(answer))
}

// isTimeout reports whether an answer did not come in time.
func isTimeout(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}
