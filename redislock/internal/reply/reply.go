// Package reply says of an error of Redis whether the server refused, whether that may change, and what to do.
package reply

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/driver"
)

// AdviceCluster is for a client of one server that is a node of a Cluster.
const AdviceCluster = "the server is a node of a Redis Cluster, and the client is for one server: " +
	"use redis+cluster:// in the URL, or redis.NewClusterClient"

// MayChange are how answers begin by which the server does not run a script, or stops it
// before it has written anything, and that may change.
var MayChange = []string{
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
	{"the server takes clients of its own host alone: give it a password (requirepass), and the client the same",
		[]string{"DENIED"}},
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
	{"the keys of one lock are in different hash slots: the Prefix must not break their hash tag",
		[]string{"CROSSSLOT"}},
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

// Explain returns what failed behind what was being done, as a refusal if the server refused a command that was sent
// once. single says that the client is for one server. Passwords are in no error: neither the server's answers nor
// those of go-redis have them.
func Explain(what string, single bool, err error) error {
	text := Text(err)
	if single && Begins(clusterRefusals, text) {
		return driver.Permanent(fmt.Errorf("%s: %s (%w)", what, AdviceCluster, err))
	}
	for _, r := range refusals {
		if Begins(r.begins, text) {
			return driver.Permanent(fmt.Errorf("%s: %s (%w)", what, r.advice, err))
		}
	}
	told := fmt.Errorf("%s: %w", what, err)
	if strings.HasPrefix(text, "TRYAGAIN") || strings.Contains(text, "attempted to access a non local key") {
		told = fmt.Errorf("%s: the lock is moving to another node: try again when it has arrived (%w)", what, err)
	}
	if Begins(MayChange, text) {
		return driver.Refused(told)
	}
	return told
}

// Begins reports whether text begins with any of these.
func Begins(any []string, text string) bool {
	return slices.ContainsFunc(any, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

// Text returns the words of the server, or "" for any other error. Before Redis 7.0 an error of a command in a
// script has others in front: ERR Error running script (call to f_…): @user_script:16: … A script's own error may stand
// behind a code and the script's name.
func Text(err error) string {
	if err == nil { // spares an allocation
		return ""
	}
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
