//go:build !unix || aix

package traffic

// Now is CLOCK_MONOTONIC, which this system does not have.
func Now() int64 {
	panic("the torture needs CLOCK_MONOTONIC, and signals that stop a process: run it on Linux or macOS")
}
