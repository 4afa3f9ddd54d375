package drivertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// clean leaves with every claim and must find nothing left, but for those that
// linger, which it breaks.
func (w *world) clean() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), lawLimit)
	defer cancel()
	view := w.open()
	for _, p := range w.placed {
		err := p.view.Leave(ctx, p.ticket, driver.Exit{})
		if errors.Is(err, driver.ErrClosed) || w.conf.crash != nil && err != nil {
			err = view.Leave(ctx, p.ticket, driver.Exit{})
		}
		if err != nil && !driver.Gone(err) {
			w.t.Errorf("clean up: Leave on %q: %v", p.ticket.Key, err)
		}
	}
	end := time.Now().Add(patience)
	for pause := pollEvery; ; pause *= 2 {
		left, err := w.leftovers(ctx, view)
		if err != nil {
			w.t.Errorf("clean up: %v", err)
			return
		}
		if left == "" {
			return
		}
		if time.Now().After(end) {
			w.t.Errorf("everybody has left, and yet %s", left)
			return
		}
		timer := time.NewTimer(pause)
		<-timer.C
	}
}

// leftovers breaks what lingers, and describes one claim that should not be there.
func (w *world) leftovers(ctx context.Context, view driver.Backend) (left string, err error) {
	for l, err := range view.Lines(ctx, w.prefix) {
		if err != nil {
			return "", err
		}
		for _, s := range l.Claims {
			left = fmt.Sprintf("the line of %q has the claim %+v", l.Key, s)
			if !s.Lingering {
				continue
			}
			if err := view.Break(ctx, l.Key, s.Token, "end of test"); err != nil && !driver.Gone(err) {
				return "", err
			}
		}
	}
	return left, nil
}
