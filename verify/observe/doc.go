// Package observe tests what is measured of locks: a real Prometheus scrapes real processes
// that take locks in a real store, and promtool tests the alerts.
package observe
