package main

import (
	"context"

	"github.com/fencelock/fencelock/memlock"
)

func checkMemory(p *place) error {
	if p.url.Opaque != "" || p.url.Host != "" || p.url.Path != "" {
		return usage("memory: takes nothing behind the colon")
	}
	p.text = "memory"
	return nil
}

func openMemory(context.Context, *place) (*store, error) {
	b := memlock.New()
	return &store{b, func() { _ = b.Close() }}, nil
}
