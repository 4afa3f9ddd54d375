package sqllock

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/fencelock/fencelock/driver"
)

// Line describes the line of key, also when nobody is in it. It is one statement.
func (b *Backend) Line(ctx context.Context, key string) (driver.Line, error) {
	var l driver.Line
	err := b.call(ctx, func(ctx context.Context) (effects, error) {
		got, _, err := b.store.line(ctx, key)
		if err == nil {
			l = got
		}
		return effects{}, err
	})
	if err != nil {
		return driver.Line{}, err
	}
	return l, nil
}

// Lines yields the lines with at least one live claim whose keys begin with prefix,
// sorted by key. Each line is one statement and is seen at one moment. No connection
// is held while a line is yielded, so the loop may use the same pool.
func (b *Backend) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		from, to := []byte(prefix), after(prefix)
		if prefix == "" {
			from = []byte{0} // keys have one byte at least, and drivers bind no bytes as null
		}
		for {
			l, more, err := b.nextLine(ctx, from, to)
			if err != nil {
				yield(driver.Line{}, err)
				return
			}
			if !more {
				return
			}
			if len(l.Claims) > 0 && !yield(l, nil) {
				return
			}
			from = append([]byte(l.Key), 0) // the least key above it
		}
	}
}

func (b *Backend) nextLine(ctx context.Context, from, to []byte) (driver.Line, bool, error) {
	var l driver.Line
	var more bool
	err := b.call(ctx, func(ctx context.Context) (effects, error) {
		got, any, err := b.store.next(ctx, from, to)
		if err == nil {
			l, more = got, any
		}
		return effects{}, err
	})
	if err != nil {
		return driver.Line{}, false, err
	}
	if more && bytes.Compare([]byte(l.Key), from) < 0 {
		return driver.Line{}, false, fmt.Errorf("%s: the database does not sort keys by their bytes", b.name)
	}
	return l, more, nil
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
