package sqllock

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"
)

const movedReason = "the database file was deleted or replaced"

// errMoved says that the path leads to another file than the one that is open.
var errMoved = errors.New(movedReason)

func movedAway(err error) bool { return errors.Is(err, errMoved) }

// maxSeenConns bounds how many connections are remembered with their -wal file.
const maxSeenConns = 64

// sqliteFile is the database file that the pool's connections have open.
//
// An open file outlives its name. A process that goes on with a file that was deleted or
// replaced excludes nobody: the next process opens what the path leads to then. The same is
// true of the -wal file, in which the last commits are.
type sqliteFile struct {
	path string      // symlinks resolved; empty for a database in memory
	main os.FileInfo // the database file

	mu     sync.Mutex
	wal    os.FileInfo      // the -wal file, or nil if there is none
	conns  map[any]struct{} // driver connections that had this -wal file open
	folder os.FileInfo      // as it was when both files were last looked at; nil if that was just changed
	looked os.FileInfo      // the -wal file then
}

// settled is how long ago a folder was changed if another change is sure to set another time.
const settled = 50 * time.Millisecond

// newSQLiteFile describes the file that path leads to.
func newSQLiteFile(path string) (*sqliteFile, error) {
	f := &sqliteFile{path: path, conns: map[any]struct{}{}}
	if path == "" {
		return f, nil
	}
	var err error
	if f.main, err = statFile(path); err != nil {
		return nil, err
	}
	if f.main == nil {
		return nil, errMoved
	}
	if n := links(f.main); n > 1 {
		return nil, permanent(fmt.Errorf("sqlite: %s has %d hard links: SQLite would keep a -wal file for each "+
			"name, and each would be another set of locks: delete the other names (find -samefile shows them)",
			path, n))
	}
	return f, nil
}

// links counts the names that a file has, where the system tells.
func links(info os.FileInfo) uint64 {
	v := reflect.Indirect(reflect.ValueOf(info.Sys()))
	if v.Kind() == reflect.Struct {
		if n := v.FieldByName("Nlink"); n.CanUint() { // its size differs between systems
			return n.Uint()
		}
	}
	return 1
}

// hasWAL reports that wal is the -wal file that was seen last.
func (f *sqliteFile) hasWAL(wal os.FileInfo) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return sameFile(wal, f.wal)
}

// checkConn returns errMoved if a connection leads to another file. A connection keeps its -wal
// file open, so one that has been seen with another -wal file writes into a deleted one.
func (f *sqliteFile) checkConn(conn *sql.Conn) error {
	wal, err := f.stat()
	if err != nil || f.path == "" {
		return err
	}
	var moved error
	err = conn.Raw(func(c any) error {
		if reflect.TypeOf(c).Kind() == reflect.Pointer {
			moved = f.see(c, wal)
		}
		return nil
	})
	return errors.Join(err, moved)
}

// see remembers that a driver connection was in use beside that -wal file.
func (f *sqliteFile) see(conn any, wal os.FileInfo) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !sameFile(wal, f.wal) {
		if _, seen := f.conns[conn]; seen {
			return errMoved
		}
		f.wal = wal
		clear(f.conns)
	}
	if wal != nil && len(f.conns) < maxSeenConns {
		f.conns[conn] = struct{}{}
	}
	return nil
}

// stat returns the -wal file that is there now, and errMoved if the database file is
// another one. A folder that was not changed has the files that it had: one call of the system
// instead of two, of which a free lock notices each.
func (f *sqliteFile) stat() (wal os.FileInfo, err error) {
	if f.path == "" {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	folder, err := statFile(filepath.Dir(f.path))
	if err != nil {
		return nil, err
	}
	if f.folder != nil && sameFile(folder, f.folder) && folder.ModTime().Equal(f.folder.ModTime()) {
		return f.looked, nil
	}
	f.folder = nil
	main, err := statFile(f.path)
	if err != nil {
		return nil, err
	}
	if !sameFile(main, f.main) {
		return nil, errMoved
	}
	wal, err = statFile(f.path + "-wal")
	if err == nil && folder != nil && time.Since(folder.ModTime()) > settled {
		f.folder, f.looked = folder, wal
	}
	return wal, err
}

// leftBehind refuses a database file that was put beside the -wal file of another one:
// SQLite would apply that one's commits to it. It must be called while a connection still
// has the old files open, or their inodes might be in use again.
func (f *sqliteFile) leftBehind() error {
	main, err := statFile(f.path)
	if err != nil || main == nil || main.Size() == 0 || sameFile(main, f.main) {
		return err // SQLite deletes the -wal file of an empty database
	}
	wal, err := statFile(f.path + "-wal")
	if err != nil || wal == nil {
		return err
	}
	if !f.hasWAL(wal) {
		return nil
	}
	return permanent(fmt.Errorf("sqlite: %s was replaced, but its old -wal file is still there: end all processes "+
		"that use it, delete %s-wal and %s-shm, then start again",
		f.path, f.path, f.path))
}

// statFile describes a file; it returns nil if there is none.
func statFile(path string) (os.FileInfo, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return info, err
}

// sameFile is os.SameFile for files that need not be there.
func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b)
}
