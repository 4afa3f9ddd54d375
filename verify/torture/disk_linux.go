package torture

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
)

// ownMounts in the environment says that this process has its mounts to itself.
const ownMounts = "FENCELOCK_TORTURE_MOUNTS"

// OwnMounts starts the program again with mounts of its own, for disks that can be full: they
// vanish with it. Call it before anything else is done. It returns when that is done, and where the
// process is not root: the torture then leaves the fault disk-full out.
func OwnMounts() error {
	if os.Getenv(ownMounts) != "" || os.Geteuid() != 0 {
		return nil
	}
	runtime.LockOSThread() // of which exec makes the process
	err := syscall.Unshare(syscall.CLONE_NEWNS)
	if errors.Is(err, syscall.EPERM) { // in a container, for example
		runtime.UnlockOSThread()
		return nil
	}
	if err == nil {
		err = syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	}
	if err == nil {
		err = syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), ownMounts+"=1"))
	}
	return fmt.Errorf("starting again with mounts of its own: %w", err)
}

// mountDisk makes dir a disk of its own, and reports whether it may.
func mountDisk(dir string) (bool, error) {
	if os.Getenv(ownMounts) == "" {
		return false, nil
	}
	return true, syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=755")
}

func unmountDisk(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }

// fill leaves no room on the disk, until free.
func (d *disk) fill() (free func() error, err error) {
	resize := func(size uint64) error {
		return syscall.Mount("tmpfs", d.dir, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", size))
	}
	var now syscall.Statfs_t
	for range 100 { // what is written meanwhile may need more room
		if err = syscall.Statfs(d.dir, &now); err != nil {
			break
		}
		used := max(now.Blocks-now.Bfree, 1) // 0 is no limit
		if err = resize(used * uint64(now.Bsize)); err == nil {
			break
		}
	}
	return func() error { return resize(now.Blocks * uint64(now.Bsize)) }, err
}
