package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/redis/go-redis/v9"
)

const (
	adviceCluster = "the server is a node of a Redis Cluster, and the client is for one server: " +
		"use redis+cluster:// in the URL, or redis.NewClusterClient"
	adviceReplica = "locks on a replica that takes writes do not exclude those on its master: connect to the master, " +
		"and set replica-read-only to yes"
)

// refusedForNow are how answers begin by which the server does not run a script, or stops it
// before it has written anything, and that may change.
var refusedForNow = []string{
	"LOADING", "MASTERDOWN", "BUSY ", "READONLY", "OOM", "MISCONF", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MOVED ",
	"ASK ", "max number of clients reached",
}

// refusals are answers that asking again will not change, by what they begin
// with, and what to do about them. After an answer that is in neither list the outcome is
// unknown, and so it is when the connection broke.
var refusals = []struct {
	advice string
	begins []string
}{
	{"the server wants a password: give the client one", []string{"NOAUTH", "Protocol error: unauthenticated"}},
	{"the server refuses the user name or the password", []string{"WRONGPASS", "invalid password"}},
	{"the server refuses how the client logs in", []string{"AUTH"}},
	{"the server has no password: give the client none", []string{"Client sent AUTH"}},
	{"the user may not do this: the comment of redislock.New lists the rights it needs",
		[]string{"NOPERM", "The user executing the script can't"}},
	{"the server does not know a command that is needed: use Redis 5.0 or newer, with scripts enabled and no " +
		"rename-command; to a Sentinel, connect by redis+sentinel:// in the URL, or redis.NewFailoverClient",
		[]string{"unknown command", "Unknown Redis command"}},
	{"the server is too old: use Redis 5.0 or newer", []string{"Write commands not allowed after non deterministic"}},
	{"a key of the lock holds something else, perhaps a lock of an older fencelock: use one version, or another Prefix",
		[]string{"WRONGTYPE"}},
	{"the keys of one lock are in different hash slots: the Prefix must not break their hash tag", []string{"CROSSSLOT"}},
	{"the server has no such database", []string{"DB index is out of range"}},
	{"the lock is kept in a format of another version of fencelock: use one version for all programs that share it",
		[]string{"FENCELOCK VERSION"}},
	{"what the server remembers of being a member of a quorum is damaged: delete that key when no lock is held",
		[]string{"FENCELOCK DAMAGED"}},
	{"the lock has no tokens left: delete its hash when nobody holds it, and reset what compares its tokens",
		[]string{"FENCELOCK EXHAUSTED"}},
}

// clusterRefusals are how a node of a Cluster begins the answer for a key that it does not serve.
// A client of a Cluster follows them. For a client of one server they do not change: a node
// serves some names and refuses the others.
var clusterRefusals = []string{"MOVED ", "ASK ", "CROSSSLOT", "CLUSTERDOWN"}

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
	text := serverText(err)
	switch {
	case b.transport.cluster == nil && begins(clusterRefusals, text):
		return driver.Permanent(fmt.Errorf("%s: %s (%w)", what, adviceCluster, err))
	case strings.Contains(text, replicaText):
		told := fmt.Errorf("%s: %s (%w)", what, adviceReplica, err)
		if b.transport.role.wasMaster() {
			return driver.Refused(told) // a failover
		}
		return driver.Permanent(told)
	}
	for _, r := range refusals {
		if begins(r.begins, text) {
			return driver.Permanent(fmt.Errorf("%s: %s (%w)", what, r.advice, err))
		}
	}
	told := fmt.Errorf("%s: %w", what, err)
	if strings.HasPrefix(text, "TRYAGAIN") || strings.Contains(text, "attempted to access a non local key") {
		told = fmt.Errorf("%s: the lock is moving to another node: try again when it has arrived (%w)", what, err)
	}
	if begins(refusedForNow, text) {
		return driver.Refused(told)
	}
	return told
}

func begins(any []string, text string) bool {
	return slices.ContainsFunc(any, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

// errHasLeft is the answer to a claim that has left.
var errHasLeft = driver.GoneError{Reason: "it has left"}

// parseGone reads 'x', 'xl', 'xa' or 'xb' reason.
func parseGone(answer string) driver.GoneError {
	switch {
	case strings.HasPrefix(answer, "xb"):
		return driver.GoneError{Reason: answer[2:], Broken: true}
	case strings.HasPrefix(answer, "xl"):
		return errHasLeft
	case strings.HasPrefix(answer, "xa"):
		return driverutil.Adopted
	}
	return driver.GoneError{}
}

// parseNotice reads how long a claim under notice has in µs, and why.
func parseNotice(s string) (gone driver.GoneError, ok bool) {
	f := fields{rest: s}
	left := min(f.number(" "), maxTTL.Microseconds())
	gone.Reason, gone.Broken, gone.Left = f.rest, true, time.Duration(left)*time.Microsecond
	return gone, !f.bad && left > 0
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

// serverText returns the words of the server, or "" for any other error. Before Redis 7.0 an error of a command in a
// script has others in front: ERR Error running script (call to f_…): @user_script:16: … A script's own error may stand
// behind a code and the script's name.
func serverText(err error) string {
	if refused := redis.Error(nil); !errors.As(err, &refused) {
		return ""
	}
	text := err.Error()
	if i := strings.Index(text, "FENCELOCK "); i >= 0 {
		return text[i:]
	}
	if !strings.HasPrefix(text, "ERR Error running script ") && !strings.HasPrefix(text, "@user_script:") {
		return strings.TrimPrefix(text, "ERR ")
	}
	if i := strings.LastIndex(text, "@user_script:"); i >= 0 {
		text = strings.TrimLeft(text[i+len("@user_script:"):], " 0123456789:-")
	}
	return strings.TrimPrefix(text, "ERR ")
}
