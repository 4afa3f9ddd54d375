package sqllock

import (
	"encoding/binary"
	"os"
	"syscall"
)

// fileBell rings when the attributes of the database file change. Steps that have
// news for other processes set its modification time, once they have committed;
// SQLite's own writing does not ring it. Nothing is ever opened: closing a second
// descriptor of a database file would drop SQLite's locks on it.
type fileBell struct {
	file *os.File
	ring chan struct{}
	done chan struct{}
}

// listenTo returns a bell for the file at path, or nil if there is none to be had.
func listenTo(path string) bell {
	if path == "" {
		return nil
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
	b := &fileBell{
		file: os.NewFile(uintptr(fd), "inotify"),
		ring: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	go b.listen()
	return b
}

// listen ends when the bell is closed, or the file is not at its path any more.
func (b *fileBell) listen() {
	defer close(b.done)
	defer close(b.ring)
	var buf [4096]byte
	for {
		n, err := b.file.Read(buf[:])
		if err != nil || replaced(buf[:n]) {
			return
		}
		select {
		case b.ring <- struct{}{}:
		default: // it rings already
		}
	}
}

// replaced reports whether one of the events says that the file has gone.
func replaced(events []byte) bool {
	for len(events) >= syscall.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(events[4:])
		if mask&(syscall.IN_DELETE_SELF|syscall.IN_MOVE_SELF|syscall.IN_IGNORED) != 0 {
			return true
		}
		size := syscall.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		events = events[min(size, len(events)):]
	}
	return false
}

func (b *fileBell) rings() <-chan struct{} { return b.ring }
func (b *fileBell) hears() bool            { return true }

func (b *fileBell) close() {
	b.file.Close()
	<-b.done
}

// present is what utimensat takes for "now", for which the right to write the
// file is enough: any other time only its owner may set.
var present = syscall.Timespec{Nsec: 1<<30 - 1}

// ringAt rings the bells of all processes that listen to the file.
func ringAt(path string) {
	if path != "" {
		syscall.UtimesNano(path, []syscall.Timespec{present, present})
	}
}
