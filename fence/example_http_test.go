package fence_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/memlock"
)

// A service refuses writes of those who have lost their lock. It keeps the marks in
// memory here; Table.Marks keeps them in the database in which next writes.
func ExampleHandler() {
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Written with fence.TokenFrom(r.Context()), for whoever wants to note it.
		w.WriteHeader(http.StatusNoContent)
	})
	resource := func(r *http.Request) string { return "orders/" + r.PathValue("id") }
	mux := http.NewServeMux()
	mux.Handle("PUT /orders/{id}", fence.Handler(next, &fence.Gates{}, resource, nil))

	put := func(token string) {
		r := httptest.NewRequest("PUT", "/orders/42", strings.NewReader("paid"))
		if token != "" {
			r.Header.Set(fence.Header, token)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Body)))
	}
	put("7")
	put("9")
	put("7")
	put("")
	// Output:
	// 204
	// 204
	// 412 {"type":"https://pkg.go.dev/github.com/fencelock/fencelock/fence#ErrStale","title":"the fencing token is stale","status":412,"detail":"The lock has passed to somebody else, whose token was seen since. Take it again before writing.","resource":"orders/42","token":"7","seen":"9"}
	// 428 {"type":"https://pkg.go.dev/github.com/fencelock/fencelock/fence#ErrNoToken","title":"there is no fencing token","status":428,"detail":"Writes to this resource need the header Fencing-Token with the token of the lock under which they are made."}
}

// The caller of such a service lets a Transport send its token, and learns from the
// answer that it has lost its lock.
func ExampleTransport() {
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	resource := func(*http.Request) string { return "orders/42" }
	service := httptest.NewServer(fence.Handler(next, &fence.Gates{}, resource, nil))
	defer service.Close()

	locks, _ := fencelock.New(memlock.New(), nil)
	defer locks.Close()
	client := &http.Client{Transport: &fence.Transport{}}
	pay := func(lease *fencelock.Lease) error {
		// Not the lease's own context here, to show what happens to a holder that has
		// not looked at it.
		ctx := fence.WithToken(context.Background(), lease.Token())
		r, err := http.NewRequestWithContext(ctx, "PUT", service.URL+"/orders/42", strings.NewReader("paid"))
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return fence.CheckResponse(resp)
	}

	ctx := context.Background()
	first, err := locks.Lock(ctx, "orders/42")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pay(first))
	locks.Break(ctx, "orders/42", first.Token(), fencelock.Break{Reason: "it hangs"})
	second, err := locks.Lock(ctx, "orders/42")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer second.Release(ctx)
	fmt.Println(pay(second))
	fmt.Println("stale:", errors.Is(pay(first), fence.ErrStale))
	// Output:
	// <nil>
	// <nil>
	// stale: true
}
