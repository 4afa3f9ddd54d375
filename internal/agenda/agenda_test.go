package agenda

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/clock"
)

type task struct {
	entry Entry
	at    int64
}

func (x *task) Entry() *Entry { return &x.entry }

func TestItemsComeInTheOrderOfTheirTimes(t *testing.T) {
	var c clock.Clock
	c.Start()
	var a Agenda[*task]
	a.Start(&c, func() {})
	defer a.Stop()
	rng := rand.New(rand.NewPCG(1, 2))
	tasks := make([]task, 1000)
	far := int64(time.Hour)
	for range 20 * len(tasks) {
		x := &tasks[rng.IntN(len(tasks))]
		if rng.IntN(3) == 0 {
			x.at = 0
			a.Drop(x)
			continue
		}
		x.at = far + rng.Int64N(far)
		a.Put(x, x.at, 0, c.Now())
	}
	var want, got []int64
	for i := range tasks {
		if at := tasks[i].at; at != 0 {
			want = append(want, at)
		}
	}
	slices.Sort(want)
	for {
		x, _ := a.Earliest(2*far, false)
		if x == nil {
			break
		}
		got = append(got, x.at)
		a.Drop(x)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d items came, want %d by their times", len(got), len(want))
	}
}
