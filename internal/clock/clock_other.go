//go:build !linux

package clock

// Asleep returns how long the machine has slept since boot. It reports false, because this
// platform does not say.
func Asleep() (int64, bool) { return 0, false }
