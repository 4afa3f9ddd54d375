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
	ctx, cancel := context.WithTimeout(context.Background(), lawLimit)
	defer cancel()
	last := w.view()
	for _, x := range w.placed {
		err := x.at.Leave(ctx, x.Ticket, driver.Exit{})
		if errors.Is(err, driver.ErrClosed) || w.conf.crash != nil && err != nil {
			err = last.Leave(ctx, x.Ticket, driver.Exit{})
		}
		w.nilOrGone("clean up: Leave", err)
	}
	end := time.Now().Add(patience)
	left := last.leftover(ctx)
	for pause := pollEvery; left != "" && time.Now().Before(end); pause *= 2 {
		<-time.After(pause)
		left = last.leftover(ctx)
	}
	w.wrongIf(left != "", "everybody has left, and yet %s", left)
}

// leftover breaks what lingers, and describes one claim that should not be there.
func (v *view) leftover(ctx context.Context) (left string) {
	for l, err := range v.Lines(ctx, v.w.prefix) {
		if err != nil {
			v.w.t.Errorf("clean up: Lines: %v", err)
			return ""
		}
		for _, s := range l.Claims {
			left = fmt.Sprintf("the line of %q has the claim %+v", l.Key, s)
			if s.Lingering {
				v.w.nilOrGone("clean up: Break", v.Break(ctx, l.Key, s.Token, "end of test"))
			}
		}
	}
	return left
}
