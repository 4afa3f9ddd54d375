//go:build unix

package redislock

import (
	"syscall"
	"testing"
)

func TestStoppedHolderOfGroupsLearnsThatItIsGone(t *testing.T) {
	onEach(t, stores, func(t *testing.T, g *group) {
		g.trial().StoppedHolder(t, syscall.SIGSTOP, syscall.SIGCONT)
	})
}
