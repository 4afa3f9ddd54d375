//go:build !verify

package redislock

import "testing"

// groupsWithLaws are those whose way to a lock is another than that of a single server.
var groupsWithLaws = map[string]func(t testing.TB) *group{"cluster": calm(clusterGroup)}
