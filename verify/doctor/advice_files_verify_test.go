//go:build verify && linux

package doctor_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
)

// The file is on a file system that hosts share, or that a program serves: bindfs, which may call
// itself sshfs.
func TestAdviceForASharedFileCanBeFollowed(t *testing.T) {
	feedsBack(t, "sqlite-network")
	for subtype, severity := range map[string]string{"": "warning", "sshfs": "error"} {
		mount := t.TempDir()
		args := []string{"-f", t.TempDir(), mount}
		if subtype != "" {
			args = append(args, "-o", "subtype="+subtype)
		}
		done, err := testserver.Spawn(exec.Command("bindfs", args...))
		if err != nil {
			t.Fatalf("%v; on Debian run: apt-get install bindfs", err)
		}
		t.Cleanup(func() {
			_ = syscall.Unmount(mount, syscall.MNT_DETACH)
			<-done
		})
		until(t, "the file system is mounted", func() bool {
			var there syscall.Statfs_t
			const fuse = 0x65735546
			return syscall.Statfs(mount, &there) == nil && there.Type == fuse
		})
		path := filepath.Join(mount, "locks.db")
		byHand(t, severity+" sqlite-network", "move the file to a disk of one host, and write its path into the URL", time.Minute,
			func() driver.Backend { return open(t, "sqlite://"+path).Backend },
			func() {
				local := t.TempDir()
				files, err := filepath.Glob(path + "*")
				must(t, err)
				if out, err := exec.Command("mv", append(files, local)...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				path = strings.Replace(path, mount, local, 1)
			})
	}
}
