package main

import (
	"net/http"
	"net/http/httptest"
	"sync"
)

// troubleAt is the payment after which the bank does not answer.
const troubleAt = 5

// bank is somebody else's: it pays what it is asked to pay. A request with an idempotency key
// that it has seen is answered as the first one was, and pays nothing.
type bank struct {
	web     *httptest.Server
	trouble chan struct{} // closed when the answer to a payment is lost

	mu   sync.Mutex
	keys map[string]bool
	paid map[string]int // seller to how often
}

func openBank() *bank {
	b := &bank{trouble: make(chan struct{}), keys: map[string]bool{}, paid: map[string]int{}}
	b.web = httptest.NewServer(b)
	return b
}

func (b *bank) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	if b.pay(r.FormValue("seller"), r.Header.Get("Idempotency-Key")) == troubleAt {
		close(b.trouble)
		<-r.Context().Done()
	}
}

// pay returns how many payments there have been, or 0 if this was none.
func (b *bank) pay(seller, key string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if key != "" && b.keys[key] {
		return 0
	}
	b.keys[key] = true
	b.paid[seller]++
	for _, times := range b.paid {
		n += times
	}
	return n
}

func (b *bank) payments() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, times := range b.paid {
		n += times
	}
	return n
}
