package swapkv

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/clock"
)

// told is a store that says what time it is.
type told struct {
	Client
	now time.Time
}

func (c told) Get(context.Context, string) (Object, error) { return Object{Now: c.now}, nil }

// The machine sleeps after the store has said what time it is. A lease that is lent by an older time would be over for
// others while its claim counts on it.
func TestTimeOfTheStoreGoesOnWhileTheMachineSleeps(t *testing.T) {
	if _, ok := clock.Asleep(); !ok {
		t.Log("this platform does not say how long it slept; nothing is promised here")
		return
	}
	began := time.Now()
	s := New(told{now: began})
	steps.Must(t, steps.ErrOf(s.get(t.Context(), "line")))
	s.clock.Skip(5 * time.Second)
	if now, err := s.now(t.Context(), "line"); err != nil || now.Sub(began) < 5*time.Second {
		t.Errorf("now is %v after the store said so, error %v", now.Sub(began), err)
	}
	if late := s.latest().Sub(began); late < 5*time.Second {
		t.Errorf("latest is %v after the store said so", late)
	}
}
