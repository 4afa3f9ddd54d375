package main

import (
	"net/http"
	"sync"
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
	if p.most.Load() < atOnce/2 {
		t.Errorf("only %d at a time: the permits are not used", p.most.Load())
	}
}

// The partner of these tests does refuse: without permits the test above would fail.
func TestPartnerRefusesACrowd(t *testing.T) {
	p := newPartner()
	defer p.Close()
	var all sync.WaitGroup
	for range 60 {
		all.Go(func() {
			if answer, err := http.Get(p.URL); err == nil {
				answer.Body.Close()
			}
		})
	}
	all.Wait()
	if p.refused.Load() == 0 {
		t.Error("nobody was refused")
	}
}
