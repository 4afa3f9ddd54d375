package sqllock

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/fencelock/fencelock/driver"
)

// Line describes the line of key, also when nobody is in it. It is one statement.
func (b *oldBackend) Line(ctx context.Context, key string) (driver.Line, error) {
	if len(key) > driver.MaxKey {
		return driver.Line{Key: key}, ctx.Err()
	}
	s, err := read(ctx, b, func(ctx context.Context) (snapshot, error) { return b.store.line(ctx, key) })
	if err != nil {
		return driver.Line{}, err
	}
	return s.line(), nil
}

// Lines yields the lines with at least one live claim whose keys begin with prefix,
// sorted by key. Each line is one statement and is seen at one moment. No connection
// is held while a line is yielded, so the loop may use the same pool.
func (b *oldBackend) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		from, to := []byte(prefix), after(prefix)
		if prefix == "" {
			from = []byte{0} // keys have one byte at least, and drivers bind no bytes as null
		}
		for {
			s, err := read(ctx, b, func(ctx context.Context) (snapshot, error) { return b.store.next(ctx, from, to) })
			if err == nil && s.key != "" && bytes.Compare([]byte(s.key), from) < 0 {
				err = fmt.Errorf("%s: the database does not sort keys by their bytes", b.info.Name)
			}
			if err != nil {
				yield(driver.Line{}, err)
				return
			}
			if s.key == "" {
				return
			}
			if l := s.line(); len(l.Claims) > 0 && !yield(l, nil) {
				return
			}
			from = append([]byte(s.key), 0) // the least key above it
		}
	}
}

// after returns a key above all that begin with prefix.
func after(prefix string) []byte {
	p := []byte(prefix)
	for len(p) > 0 && p[len(p)-1] == 0xff {
		p = p[:len(p)-1]
	}
	if len(p) == 0 {
		return bytes.Repeat([]byte{0xff}, driver.MaxKey+1)
	}
	p[len(p)-1]++
	return p
}
