package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/fencelock/fencelock/storeurl"
)

const (
	// contactPause is about the pause between two tries of a first contact.
	contactPause = 250 * time.Millisecond
	// crowdedPause is about the longest pause between two tries at a server that is full.
	crowdedPause = 2 * time.Second
	// lastPlace is how long the last connection of a server is left to a holder, which needs it when it renews.
	lastPlace = 20 * time.Second
)

// contact is the first contact of a command that may wait.
//
// A command that was told that the server is full begins only where two connections fit, and gives its own
// back otherwise. Without this rule commands that want to wait take the place of a holder whose connection
// broke: it cannot come back, and loses its lock. Nobody may want the place, so it is not left free for long.
type contact struct {
	store *store
	name  string
	end   time.Time // of the wait; zero: none
	full  int       // how often the server was full
	alone time.Time // since when there is one place
}

// try connects once.
func (c *contact) try(ctx context.Context, most time.Duration) (*storeurl.Store, *failure, error) {
	open, err := c.store.connect(ctx, c.name, most)
	if err != nil {
		c.alone = time.Time{}
		own := c.noted(err)
		return nil, own, err
	}
	if c.full == 0 {
		return open, nil, nil
	}
	spare, err := c.store.connect(ctx, c.name, most)
	if err == nil {
		spare.Close()
		return open, nil, nil
	}
	own := c.noted(err)
	if own == nil || !own.full || c.patienceIsOver() {
		return open, nil, nil
	}
	open.Close()
	return nil, own, err
}

// noted counts err if it says that the server is full.
func (c *contact) noted(err error) (own *failure) {
	if errors.As(err, &own) && own.full {
		c.full++
	}
	return own
}

// patienceIsOver reports whether the last place has been free for so long that nobody comes back to it.
func (c *contact) patienceIsOver() bool {
	if c.alone.IsZero() {
		c.alone = time.Now()
	}
	most := lastPlace
	if !c.end.IsZero() {
		most = min(most, c.end.Sub(c.alone)/2)
	}
	return time.Since(c.alone) >= most
}

// pause waits until the next try. Commands that wait for the same server do not try in step.
func (c *contact) pause(ctx context.Context) bool {
	pause := min(contactPause<<min(max(c.full-1, 0), 8), crowdedPause)
	if !c.end.IsZero() {
		pause = max(min(pause, time.Until(c.end)/4), contactPause)
	}
	select {
	case <-time.After(pause/2 + rand.N(pause)):
		return true
	case <-ctx.Done():
		return false
	}
}

// connectUntil tries until end.
func (s *store) connectUntil(ctx context.Context, name string, end time.Time) (*storeurl.Store, error) {
	c := contact{store: s, name: name, end: end}
	var last *failure
	for {
		open, own, err := c.try(ctx, min(time.Until(end), firstContact))
		if err == nil || ctx.Err() != nil || own == nil || own.code != exitUnavailable {
			return open, err
		}
		left := time.Until(end)
		switch {
		case left <= 0 && last != nil: // this try was cut short, and says less
			return nil, last.over(name)
		case left <= contactPause:
			return nil, own.over(name)
		case last == nil && left > time.Second:
			say("%s; asking again for %s", own.text, span(left))
		}
		last = own
		if !c.pause(ctx) {
			return nil, own
		}
	}
}

// connectWhileFull tries until the server is not full.
func (s *store) connectWhileFull(ctx context.Context, name string) (*storeurl.Store, error) {
	c := contact{store: s, name: name}
	for first := true; ; first = false {
		open, own, err := c.try(ctx, firstContact)
		if err == nil || ctx.Err() != nil || own == nil || !own.full {
			return open, err
		}
		if first {
			say("%s; asking again", own.text)
		}
		if !c.pause(ctx) {
			return nil, own
		}
	}
}
