package sqllock

import (
	"os"
	"syscall"
)

// fileNotifier reports changes of the database file's attributes, by inotify. A transaction
// that concerns other processes sets the file's modification time after it has committed;
// SQLite's own writes are not reported. The file is never opened: closing a second
// descriptor of a database file drops SQLite's locks on it.
type fileNotifier struct {
	path    string
	file    os.FileInfo
	inotify *os.File
	events  chan struct{}
	done    chan struct{}
}

// watchFile returns a notifier for the file at path, or nil if there can be none.
func watchFile(path string) notifier {
	file, err := os.Stat(path)
	if err != nil {
		return nil // there is no file, or no more
	}
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil // this user has used up the system's instances
	}
	const mask = syscall.IN_ATTRIB | syscall.IN_DELETE_SELF | syscall.IN_MOVE_SELF
	if _, err := syscall.InotifyAddWatch(fd, path, mask); err != nil {
		syscall.Close(fd)
		return nil
	}
	n := &fileNotifier{
		path:    path,
		file:    file,
		inotify: os.NewFile(uintptr(fd), "inotify"),
		events:  make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
	go n.run()
	return n
}

// run ends when the notifier is closed, or the file is no longer at its path.
func (n *fileNotifier) run() {
	defer close(n.done)
	defer close(n.events)
	var buf [4096]byte
	for {
		if _, err := n.inotify.Read(buf[:]); err != nil {
			return
		}
		if now, err := os.Stat(n.path); err != nil || !os.SameFile(now, n.file) {
			return
		}
		signal(n.events)
	}
}

func (n *fileNotifier) notified() <-chan struct{} { return n.events }
func (n *fileNotifier) active() bool              { return true }

func (n *fileNotifier) close() {
	n.inotify.Close()
	<-n.done
}

// utimeNow makes utimensat set the current time. That needs the right to write the file;
// any other time may be set by its owner only.
var utimeNow = syscall.Timespec{Nsec: 1<<30 - 1}

// notifyFile notifies all processes that watch the file.
func notifyFile(path string) {
	if path != "" {
		_ = syscall.UtimesNano(path, []syscall.Timespec{utimeNow, utimeNow})
	}
}
