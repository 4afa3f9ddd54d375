package fence_test

import (
	"database/sql"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
)

// newService returns a service that adds to a row in the transaction of its mark, and
// answers the status that its body says.
func newService(t testing.TB, d database, level sql.IsolationLevel, db *sql.DB, table *fence.Table) http.Handler {
	t.Helper()
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx := fence.TxFrom(r.Context())
		if _, err := tx.ExecContext(r.Context(), d.sql(`UPDATE doc SET n = n + 1, token = ? WHERE id = 1`), fence.TokenFrom(r.Context())); err != nil {
			panic(err)
		}
		body, _ := io.ReadAll(r.Body)
		switch string(body) {
		case "refuse":
			w.WriteHeader(http.StatusConflict)
		case "panic":
			panic(http.ErrAbortHandler)
		}
	})
	return fence.Handler(next, table.Marks(db, &sql.TxOptions{Isolation: level}), func(*http.Request) string { return "doc" }, nil)
}

func put(h http.Handler, body string, token fence.Token) (r *http.Response, panicked any) {
	req := httptest.NewRequest("PUT", "/doc", strings.NewReader(body))
	req.Header.Set(fence.Header, token.String())
	w := httptest.NewRecorder()
	func() {
		defer func() { panicked = recover() }()
		h.ServeHTTP(w, req)
	}()
	return w.Result(), panicked
}

func TestHandlersWriteStandsTogetherWithItsMark(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database, level sql.IsolationLevel) {
		table, db := newTable(t, d)
		h := newService(t, d, level, db, table)
		doc := func() (n int) {
			t.Helper()
			steps.Must(t, db.QueryRow(`SELECT n FROM doc WHERE id = 1`).Scan(&n))
			return n
		}
		for i, c := range []struct {
			body   string
			token  fence.Token
			status int
			n      int
		}{
			{"", 7, 200, 1},
			{"", 7, 200, 2},
			{"refuse", 9, 409, 2}, // rolled back, with its mark
			{"", 8, 200, 3},
			{"", 7, 412, 3},
			{"", 1 << 62, 200, 4},
			{"", 1<<62 - 1, 412, 4},
			{"", 1<<62 + 1, 200, 5},
		} {
			r, _ := put(h, c.body, c.token)
			if r.StatusCode != c.status || doc() != c.n || errors.Is(fence.CheckResponse(r), fence.ErrStale) != (c.status == 412) {
				t.Errorf("%d: %s, the row counts %d; want %+v", i, r.Status, doc(), c)
			}
		}
		if _, panicked := put(h, "panic", 1<<62+9); panicked != http.ErrAbortHandler || doc() != 5 {
			t.Errorf("panicked with %v, the row counts %d", panicked, doc())
		}
		if r, _ := put(h, "", 1<<62+1); r.StatusCode != 200 {
			t.Errorf("after a panic: %s", r.Status)
		}
	})
}
