package transport

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// IsTimeout reports whether an answer did not come in time.
func IsTimeout(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}

// scriptError is why a script failed for one lock.
type scriptError string

func (e scriptError) Error() string { return string(e) }

// RedisError makes it an error of the server.
func (scriptError) RedisError() {}

// lockError returns the error in the answer for one lock.
func lockError(answer any) error {
	if text, ok := answer.(string); ok && strings.HasPrefix(text, "e") {
		return scriptError(text[1:])
	}
	return nil
}

// IsSlotMoving reports whether a Cluster did not run a script since its hash slot is
// moving, and some of the keys are not where the others are.
func IsSlotMoving(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "TRYAGAIN")
}

// isCrossSlot reports whether a server refused a script since its keys are in several hash
// slots: the client is for one server, and a Cluster or its proxy is behind it.
func isCrossSlot(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "CROSSSLOT")
}

// ServerText returns the words of the server. Before Redis 7.0 an error of a command in a
// script has others in front: ERR Error running script (call to f_…): @user_script:16: …
func ServerText(err error) string {
	text := err.Error()
	if !strings.HasPrefix(text, "ERR Error running script ") && !strings.HasPrefix(text, "@user_script:") {
		return text
	}
	if i := strings.LastIndex(text, "@user_script:"); i >= 0 {
		text = strings.TrimLeft(text[i+len("@user_script:"):], " 0123456789:-")
	}
	return text
}

// unknownScript reports whether the server does not have a script, and so has not run it.
func unknownScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// isSilence reports whether a node did not answer. It may hang.
func isSilence(err error) bool {
	return IsTimeout(err) || errors.Is(err, context.Canceled)
}

// isNodeGone reports whether a request may have gone to a node that has its slots no more.
func isNodeGone(err error) bool {
	if err == nil {
		return false
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return true
	}
	for _, begins := range []string{"MOVED", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "LOADING"} {
		if strings.HasPrefix(ServerText(err), begins) {
			return true
		}
	}
	return false
}
