package bridge

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// Line describes the lines of key in both stores as one: the line of the new store, and behind it
// the claims that are in the old store only. Those are granted if they are of programs that use
// the old store only, and wait otherwise.
func (b *Backend) Line(ctx context.Context, key string) (driver.Line, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Line{}, err
	}
	old, err := b.old.Line(ctx, key)
	if err != nil {
		return old, b.old.failed(err)
	}
	new, err := b.new.Line(ctx, key)
	if err != nil {
		return new, b.new.failed(err)
	}
	return merge(old, new), nil
}

// merge makes one line of two.
func merge(old, new driver.Line) driver.Line {
	l := driver.Line{Key: new.Key, Last: max(old.Last, new.Last), Mark: max(old.Mark, new.Mark)}
	for _, s := range new.Claims {
		s.Owner = strings.TrimSuffix(s.Owner, ownerMark)
		if o := sameClaim(old.Claims, s); o != nil {
			s.Left, s.Reason = min(s.Left, o.Left), cmp.Or(s.Reason, o.Reason)
		}
		l.Claims = append(l.Claims, s)
	}
	for _, s := range old.Claims {
		s.Owner = strings.TrimSuffix(s.Owner, ownerMark)
		if sameClaim(new.Claims, s) == nil {
			if !driverutil.Exclusive(&s.Claim) && s.Span > room {
				s.Span -= room
			}
			l.Claims = append(l.Claims, s)
		}
	}
	return l
}

// sameClaim returns the claim of cs that has the ID of s, as far as IDs are shown.
func sameClaim(cs []driver.Standing, s driver.Standing) *driver.Standing {
	i := slices.IndexFunc(cs, func(c driver.Standing) bool { return c.ID == s.ID })
	if i < 0 {
		return nil
	}
	return &cs[i]
}

// Lines yields the lines of both stores. It reads all lines of the new store first.
func (b *Backend) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		if err := b.ready(ctx); err != nil {
			yield(driver.Line{}, err)
			return
		}
		news := map[string]driver.Line{}
		for l, err := range b.new.Lines(ctx, prefix) {
			if err != nil {
				yield(l, b.new.failed(err))
				return
			}
			news[l.Key] = l
		}
		for l, err := range b.old.Lines(ctx, prefix) {
			if err != nil {
				yield(l, b.old.failed(err))
				return
			}
			new, ok := news[l.Key]
			if !ok {
				new.Key = l.Key
			}
			delete(news, l.Key)
			if !yield(merge(l, new), nil) {
				return
			}
		}
		for key, l := range news {
			if !yield(merge(driver.Line{Key: key}, l), nil) {
				return
			}
		}
	}
}

// Break ends the claim of key whose span holds token in both stores. It costs two requests to
// each.
//
// A claim that waits has the token of the store in whose line it waits, as Line shows it.
func (b *Backend) Break(ctx context.Context, key string, token int64, how driver.Break) error {
	if how.Delay > 0 && !b.info.Linger {
		return driver.Permanent(errors.New("bridge: one of the two stores cannot keep a key closed after a break"))
	}
	if err := b.ready(ctx); err != nil {
		return err
	}
	old, err := b.old.Line(ctx, key)
	if err != nil {
		return b.old.failed(err)
	}
	new, err := b.new.Line(ctx, key)
	if err != nil {
		return b.new.failed(err)
	}
	inOld, inNew := find(old.Claims, new.Claims, token)
	err = driver.GoneError{}
	if inNew != nil {
		err = b.new.failed(b.new.Break(ctx, key, inNew.Token, how))
		if err != nil && !driver.Gone(err) {
			return err
		}
	}
	if inOld != nil {
		if inNew != nil && !inNew.Granted {
			how.Delay, how.Notice = -1, 0 // it waits, though the old store has granted it
		}
		other := b.old.failed(b.old.Break(ctx, key, inOld.Token, how))
		if other == nil || !driver.Gone(other) {
			return other
		}
	}
	return err
}

// find returns the claim with token as both stores have it; nil where a store does not. A
// claim that is in both has the tokens of the new store.
func find(old, new []driver.Standing, token int64) (inOld, inNew *driver.Standing) {
	for i, s := range new {
		if token >= s.Token && token-s.Token < max(s.Span, 1) {
			return sameClaim(old, s), &new[i]
		}
	}
	for i, s := range old {
		if token >= s.Token && token-s.Token < max(s.Span, 1) && sameClaim(new, s) == nil {
			return &old[i], nil
		}
	}
	return nil, nil
}
