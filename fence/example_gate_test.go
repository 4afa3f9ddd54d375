package fence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/memlock"
)

// A file that only this process writes, on behalf of holders of a lock. The first
// holder loses its lock without noticing, and writes when the second has.
func ExampleGate() {
	client, _ := fencelock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()

	file := fence.Gate{Resource: "report.csv"}
	write := func(lease *fencelock.Lease, text string) error {
		return file.Do(ctx, lease.Token(), func() error {
			fmt.Println("written:", text)
			return nil
		})
	}

	first, err := client.Lock(ctx, "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(write(first, "by the first"), write(first, "again by the first"))

	client.Break(ctx, "report", first.Token(), fencelock.Break{Reason: "it hangs"})
	second, err := client.Lock(ctx, "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer second.Release(ctx)
	fmt.Println(write(second, "by the second"))

	err = write(first, "too late")
	fmt.Println("stale:", errors.Is(err, fence.ErrStale))
	// Output:
	// written: by the first
	// written: again by the first
	// <nil> <nil>
	// written: by the second
	// <nil>
	// stale: true
}
