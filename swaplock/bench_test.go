package swaplock_test

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/swaplock"
)

// One holder leaves, the next one is granted, and the one that has left enters again at the end of the line.
func BenchmarkHandOver(b *testing.B) {
	for _, waiters := range []int{0, 10, 100, 500} {
		b.Run(fmt.Sprint("Line=", waiters), func(b *testing.B) {
			backend := swaplock.New(newToy())
			defer backend.Close()
			var line []driver.Ticket
			enter := func() {
				c := exclusive(rand.Text(), time.Hour)
				c.Owner = "somebody@some-host-7f9c"
				t, err := backend.Enter(b.Context(), c)
				if err != nil {
					b.Fatal(err)
				}
				line = append(line, t)
			}
			for range waiters + 1 {
				enter()
			}
			for b.Loop() {
				if err := backend.Leave(b.Context(), line[0], driver.Exit{}); err != nil {
					b.Fatal(err)
				}
				line = line[1:]
				enter()
			}
		})
	}
}
