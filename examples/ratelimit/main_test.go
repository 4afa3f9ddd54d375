package main

import (
	"testing"

	"github.com/fencelock/fencelock/internal/testserver"
)

func TestPartnerIsNeverAskedTooMuch(t *testing.T) {
	p := newPartner()
	defer p.Close()
	if err := run(t.Context(), testserver.Redis(t).Addr(), p); err != nil {
		t.Error(err)
	}
	if p.refused.Load() != 0 || p.most.Load() > atOnce {
		t.Errorf("%d requests at a time, %d refused", p.most.Load(), p.refused.Load())
	}
	if p.calls.Load() != 180 {
		t.Errorf("%d calls of 180 were made", p.calls.Load())
	}
	if p.most.Load() < 2 {
		t.Errorf("only %d at a time: the permits are not used", p.most.Load())
	}
}
