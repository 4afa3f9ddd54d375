// Package tofu runs a real OpenTofu against fencelock serve. It is a module of its own, because
// OpenTofu has many dependencies; building it takes minutes, so make test leaves it out, and
// make tofu runs it.
package tofu
