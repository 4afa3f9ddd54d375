package main

import (
	"io"
	"os"
)

// output is stdout. It remembers the first write that failed and takes none after it, so a
// verb need not check each of its writes: execute checks once, after the verb.
type output struct {
	w   io.WriteCloser
	err error

	written bool
}

func stdout() *output { return &output{w: os.Stdout} }

func (o *output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	o.written = true
	n, err := o.w.Write(p)
	o.err = err
	return n, err
}

// close returns the first error of a write. It closes a stdout that was written to: some
// file systems (NFS, quotas) report a lost write at close only.
func (o *output) close() error {
	if !o.written {
		return nil
	}
	if err := o.w.Close(); o.err == nil {
		o.err = err
	}
	return o.err
}
