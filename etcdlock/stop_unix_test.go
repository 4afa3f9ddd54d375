//go:build unix

package etcdlock_test

import (
	"syscall"
	"testing"
)

//verify:fault etcd | the holder is stopped past its lease
func TestStoppedHolderLearnsThatItIsGone(t *testing.T) {
	trial(t).StoppedHolder(t, syscall.SIGSTOP, syscall.SIGCONT)
}
