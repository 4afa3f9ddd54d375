package bridge

import "github.com/fencelock/fencelock/driver"

// tokenless reports whether a store gives no tokens.
func tokenless(b driver.Backend) bool { return false }
