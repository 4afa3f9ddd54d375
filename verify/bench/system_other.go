//go:build !unix

package bench

import (
	"errors"
	"time"
)

func sharedGuard(string) (*guard, func() error, error) {
	return nil, nil, errors.New("several processes cannot be measured on this system: leave out the case processes")
}

// cpuTime is not known here, and reported as 0.
func cpuTime() time.Duration { return 0 }

const canYield = false

func yieldAlways() error { return errors.ErrUnsupported }
