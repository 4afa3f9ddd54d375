// Package terminal prints text for people: the commands fencelock and fencelock-lab
// share it.
package terminal

import (
	"errors"
	"io"
	"os"
)

// Output is stdout. It remembers the first write that failed and takes none after it, so a
// program need not check each of its writes: it calls Close at its end.
type Output struct {
	w       io.WriteCloser
	err     error
	written bool
}

// Stdout returns the Output of this process.
func Stdout() *Output { return &Output{w: os.Stdout} }

func (o *Output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	o.written = true
	n, err := o.w.Write(p)
	o.err = err
	return n, err
}

// Close returns the first error of a write. It closes a stdout that was written to: some
// file systems (NFS, quotas) report a lost write at close only.
func (o *Output) Close() error {
	if !o.written {
		return nil
	}
	if err := o.w.Close(); o.err == nil {
		o.err = err
	}
	return o.err
}

// Pathless takes the name of the file out of err: for stdout, and for files with a name of
// the program's own, it says nothing to people.
func Pathless(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
