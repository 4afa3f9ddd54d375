package torture

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// A full disk takes nothing, and then has room again. Without the right to mount there is none,
// and the fault is refused.
func TestDiskIsFullAndHasRoomAgain(t *testing.T) {
	h := &host{dir: t.TempDir()}
	defer h.stop()
	dir := h.TempDir()
	w := &world{}
	for _, dir := range h.disks {
		w.disks = append(w.disks, disk{dir: dir})
	}
	if root := os.Geteuid() == 0; !root {
		if _, refused, err := w.find("disk-full"); len(refused) != 1 || err != nil {
			t.Errorf("without a disk the fault is refused with %q, %v", refused, err)
		}
		return
	}
	for round := range 3 {
		write := func() error {
			return os.WriteFile(filepath.Join(dir, fmt.Sprint(round)), make([]byte, 100_000), 0o600)
		}
		free, err := w.disks[0].fill()
		steps.Must(t, err)
		steps.Is(t, "writing to the full disk", write(), syscall.ENOSPC)
		steps.Must(t, free())
		steps.Well(t, "writing to the disk when it has room again", write())
	}
}
