//go:build unix

package etcd_test

import (
	"syscall"
	"testing"
)

func TestStoppedHolderLearnsThatItIsGone(t *testing.T) {
	trial(t).StoppedHolder(t, syscall.SIGSTOP, syscall.SIGCONT)
}
