// Package every holds tests that each store has to pass alike: what clocks and networks
// do to a lock. They run on Linux, in a network namespace of their own.
package every
