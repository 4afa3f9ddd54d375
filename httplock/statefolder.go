package httplock

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// StateFolder is a StateStore in a folder of files, for all processes of this host, or of all
// hosts that have the file system. Each state has a folder of its own in it:
//
//	prod-1b2c…/terraform.tfstate   the state, as the client sent it
//	prod-1b2c…/lock.json           the record of who has locked it
//	prod-1b2c…/mutex               locked while one of them is written
//
// Files have mode 0600. A write is a new file that is synced and then renamed, so a crash
// leaves the old content or the new one.
type StateFolder struct{ dir string }

// NewStateFolder returns the StateFolder in dir, which it makes if need be. The error says why
// dir cannot be written.
func NewStateFolder(dir string) (*StateFolder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("httplock: the folder for states cannot be made: %w", err)
	}
	f := &StateFolder{dir}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := f.inMutex(ctx, dir, func() error { return nil })
	if err != nil {
		return nil, fmt.Errorf("httplock: the folder for states cannot be used: %w", err)
	}
	return f, nil
}

// The files of one state.
const (
	stateFile = "terraform.tfstate"
	lockFile  = "lock.json"
	mutexFile = "mutex"
)

// folderRecord is the content of lockFile.
type folderRecord struct {
	Version string `json:"version"`
	Name    string `json:"name"`
	StateLock
}

// State returns the state of name, or ErrNoState.
func (f *StateFolder) State(_ context.Context, name string) ([]byte, error) {
	b, err := os.ReadFile(f.path(name, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoState
	}
	return b, err
}

// Lock returns the record of name and its version.
func (f *StateFolder) Lock(_ context.Context, name string) (StateLock, string, error) {
	r, err := readRecord(f.path(name, lockFile))
	return r.StateLock, r.Version, err
}

// SetLock replaces the record of name if it has this version.
func (f *StateFolder) SetLock(ctx context.Context, name string, l StateLock, version string) error {
	b, err := json.MarshalIndent(folderRecord{rand.Text(), strings.ToValidUTF8(name, "?"), l}, "", "  ")
	if err != nil {
		return err
	}
	return f.change(ctx, name, version, func() error { return replaceFile(f.path(name, lockFile), b) })
}

// SetState replaces the state of name if its record has this version. nil deletes the state.
func (f *StateFolder) SetState(ctx context.Context, name string, state []byte, version string) error {
	path := f.path(name, stateFile)
	return f.change(ctx, name, version, func() error {
		if state != nil {
			return replaceFile(path, state)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return syncDir(filepath.Dir(path))
	})
}

// Locked returns the names whose records have an ID.
func (f *StateFolder) Locked(context.Context) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(globQuote(f.dir), "*", lockFile))
	var names []string
	for _, path := range found {
		r, readErr := readRecord(path)
		if readErr == nil && r.ID != "" && f.path(r.Name, lockFile) == path {
			names = append(names, r.Name)
		}
		err = errors.Join(err, readErr)
	}
	return names, err
}

// globQuote makes a pattern that only s matches.
func globQuote(s string) string {
	if os.PathSeparator == '\\' {
		return s // the pattern language has no quotes there
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// readable is how many bytes of a name its folder shows.
const readable = 40

// path is the path of a file of the state name. The hash tells names apart that file systems
// do not, such as Prod and prod.
func (f *StateFolder) path(name, file string) string {
	sum := sha256.Sum256([]byte(name))
	show := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, name)
	return filepath.Join(f.dir, show[:min(len(show), readable)]+"-"+hex.EncodeToString(sum[:16]), file)
}

// change calls write, alone among all processes, if the record of name has this version.
func (f *StateFolder) change(ctx context.Context, name, version string, write func() error) error {
	dir := filepath.Dir(f.path(name, lockFile))
	if err := os.Mkdir(dir, 0o700); err == nil {
		err = syncDir(f.dir)
		if err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return f.inMutex(ctx, dir, func() error {
		r, err := readRecord(filepath.Join(dir, lockFile))
		switch {
		case err != nil:
			return err
		case r.Version != version:
			return ErrStateChanged
		}
		return write()
	})
}

// mutexPause is how long a process waits before it tries the mutex of a folder again.
const mutexPause = 2 * time.Millisecond

// inMutex calls do while no other process has the mutex of dir. The operating system frees
// the mutex of a process that ends.
func (f *StateFolder) inMutex(ctx context.Context, dir string, do func() error) error {
	for {
		unlock, err := lockFileOnce(filepath.Join(dir, mutexFile))
		if err == nil {
			defer unlock()
			return do()
		}
		if !errors.Is(err, errFileLocked) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("another process keeps the mutex of the state: %w", ctx.Err())
		case <-time.After(mutexPause):
		}
	}
}

// errFileLocked says that somebody else has the mutex.
var errFileLocked = errors.New("the file is locked")

func readRecord(path string) (r folderRecord, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return folderRecord{}, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return folderRecord{}, fmt.Errorf("the record %s cannot be read: %w", filepath.Base(filepath.Dir(path)), err)
	}
	return r, nil
}

// replaceFile writes a file whose content is the old one or b, whatever happens. The caller
// is the only one who writes it.
func replaceFile(path string, b []byte) error {
	temp := path + ".new"
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(b)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}
