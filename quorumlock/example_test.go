package quorumlock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/quorumlock"
)

// A program opens each store as a member, here stores in memory. A new quorum is initialised
// once, by whoever sets it up; fencelock init does the same.
func Example() {
	ctx := context.Background()
	var members []driver.Backend
	for range 3 {
		members = append(members, memlock.NewMember(&driver.Membership{}))
	}
	quorum := quorumlock.New(members, nil)
	client, err := fencelock.New(quorum, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	if _, err := client.TryLock(ctx, "nightly"); err != nil {
		fmt.Println("a new quorum grants nothing yet")
	}
	if err := quorum.Initialise(ctx); err != nil {
		log.Fatal(err)
	}
	lease, err := client.Lock(ctx, "nightly")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", lease.Err() == nil)
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// a new quorum grants nothing yet
	// held: true
}
