package drivertest

import (
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// senders is how many goroutines send what a law needs many of.
const senders = 16

// enterMany enters n claims, several at a time.
func (w *world) enterMany(n int, claim func(i int) driver.Claim) []*inLine {
	w.t.Helper()
	ts := make([]*inLine, n)
	w.each(n, func(i int) {
		t, err := w.a.try(claim(i))
		w.wrongIf(err != nil, "Enter %d of %d: %v", i, n, err)
		ts[i] = t
	})
	if w.t.Failed() {
		w.t.Fatalf("not everybody could enter")
	}
	return ts
}

// each calls f for 0 to n-1, several at a time.
func (w *world) each(n int, f func(i int)) {
	next := make(chan int)
	var group sync.WaitGroup
	for range min(n, senders) {
		group.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
}
