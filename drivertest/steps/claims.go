// Package steps holds the words in which the tests of a backend are written: claims, and steps of a
// driver.Backend that must succeed. The laws themselves are in package drivertest.
package steps

import (
	"crypto/rand"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Claim returns an exclusive claim with an ID of its own. Its lease outlasts a test.
func Claim(key string) driver.Claim {
	return driver.Claim{
		Key: key, ID: rand.Text(), Owner: "somebody", Note: "a note",
		Capacity: driver.RW, Weight: driver.RW, TTL: 6 * time.Minute, Span: 1,
	}
}

// Reader returns a claim to read.
func Reader(key string) driver.Claim {
	c := Claim(key)
	c.Weight = 1
	return c
}

// Permits returns a claim to n permits of a semaphore of size.
func Permits(key string, n, size int64) driver.Claim {
	c := Claim(key)
	c.Weight, c.Capacity = n, size
	return c
}

// TTL returns c with a lease of d.
func TTL(c driver.Claim, d time.Duration) driver.Claim {
	c.TTL = d
	return c
}

// NoWait returns c as a claim that does not wait.
func NoWait(c driver.Claim) driver.Claim {
	c.NoWait = true
	return c
}

// Another returns a claim like c with another ID.
func Another(c driver.Claim) driver.Claim {
	c.ID = rand.Text()
	return c
}
