package reports

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/httplock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/storeurl"
)

// granting is a store that does something when the server has granted a claim, and the process
// that asked does not know of it yet.
type granting struct {
	driver.Backend
	driver.Detacher
	do func()
}

func (g *granting) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	t, err := g.Backend.Enter(ctx, c)
	if err == nil && t.Granted {
		g.do()
	}
	return t, err
}

// A shell script asks for a lock of ten minutes with curl and is interrupted. Its connection is
// cut in the instant in which the store has granted the lock. The key stayed taken for ten minutes.
func TestConnectionThatIsCutAtTheGrantLeavesNothing(t *testing.T) {
	for name, store := range storeURLs(t) {
		for path, body := range map[string]string{
			"/v1/acquire": `{"key":"job","ttl":"10m"}`, "/v1/once": `{"key":"job","ttl":"10m","slot":"1h"}`,
		} {
			t.Run(name+path, func(t *testing.T) {
				opened, err := storeurl.Open(t.Context(), store)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(opened.Close)
				ctx, cut := context.WithCancel(t.Context())
				defer cut()
				asked := make(chan context.Context, 1) // the context of the request at the server
				answered := make(chan struct{})
				locks := testclient.New(t, &granting{opened.Backend, opened.Backend.(driver.Detacher), func() {
					if ctx.Err() == nil {
						cut()
						<-(<-asked).Done()
					}
				}}, nil)
				t.Cleanup(func() { _ = locks.Close() })
				s, err := httplock.New(locks, nil)
				if err != nil {
					t.Fatal(err)
				}
				web := s.HTTPServer()
				web.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(answered)
					asked <- r.Context()
					s.ServeHTTP(w, r)
				})
				url := testclient.Serve(t, web, s.Drain).URL
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				if res, err := http.DefaultClient.Do(r); err == nil {
					res.Body.Close()
					t.Fatalf("the request was answered with %d", res.StatusCode)
				}
				select {
				case <-answered:
				case <-time.After(time.Minute):
					t.Fatal("the server goes on with the request")
				}
				other := serve(t, store)
				h := other.must("/v1/acquire", map[string]any{"key": "job"})
				other.must("/v1/release", map[string]any{"handle": h.body["handle"]})
			})
		}
	}
}
