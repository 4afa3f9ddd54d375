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
	last := w.view()
	for _, x := range w.placed {
		err := x.at.Leave(ctx, x.Ticket, driver.Exit{})
		if errors.Is(err, driver.ErrClosed) || w.conf.crash != nil && err != nil {
			err = last.Leave(ctx, x.Ticket, driver.Exit{})
		}
		w.wrongIf(err != nil && !driver.Gone(err), "clean up: Leave on %q: %v", x.Key, err)
	}
	end := time.Now().Add(patience)
	for pause := pollEvery; ; pause *= 2 {
		left, err := last.leftovers(ctx)
		switch {
		case err != nil:
			w.t.Errorf("clean up: %v", err)
			return
		case left == "":
			return
		case time.Now().After(end):
			w.t.Errorf("everybody has left, and yet %s", left)
			return
		}
		<-time.After(pause)
	}
}

// leftovers breaks what lingers, and describes one claim that should not be there.
func (v *view) leftovers(ctx context.Context) (left string, err error) {
	for l, err := range v.Lines(ctx, v.w.prefix) {
		if err != nil {
			return "", err
		}
		for _, s := range l.Claims {
			left = fmt.Sprintf("the line of %q has the claim %+v", l.Key, s)
			if !s.Lingering {
				continue
			}
			if err := v.Break(ctx, l.Key, s.Token, "end of test"); err != nil && !driver.Gone(err) {
				return "", err
			}
		}
	}
	return left, nil
}
