package swapsql

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/swaplock"
)

// asked keeps the statements that it is asked to run, and changes so many rows each time.
type asked struct {
	all  []*Statement
	rows int64
}

func (c *asked) Run(_ context.Context, st *Statement) (int64, error) {
	c.all = append(c.all, st)
	return c.rows, nil
}

// TestLockThatMayBeFree: a server takes a lock that was left free by an UPDATE, which costs it half of what the
// statement does that may also make the row or put the claim behind others. If somebody has been there since, that one
// follows. It comes at once where nothing is known of the lock, but on SQLite, whose statement for a free lock makes
// the row.
func TestLockThatMayBeFree(t *testing.T) {
	for _, tt := range []struct {
		d            *Dialect
		free, unseen []string
	}{
		{Postgres, []string{"UPDATE", "INSERT"}, []string{"INSERT"}},
		{MySQL, []string{"UPDATE", "INSERT"}, []string{"INSERT"}},
		{SQLite, []string{"INSERT", "INSERT"}, []string{"INSERT", "INSERT"}},
	} {
		for _, a := range []swaplock.Arrival{{Free: true}, {Unseen: true}, {}} {
			want := []string{"INSERT"}
			switch {
			case a.Free:
				want = tt.free
			case a.Unseen:
				want = tt.unseen
			}
			conns := &asked{}
			a.ID, a.Claim, a.Span, a.Capacity, a.Waits = "a", []byte("{}"), 1, 1, true
			steps.Must(t, steps.ErrOf(New(conns, tt.d, Options{}).Arrive(t.Context(), "k", &a)))
			var words []string
			for _, st := range conns.all {
				words = append(words, strings.Fields(st.Text)[0])
			}
			if !slices.Equal(words, want) {
				t.Errorf("a claim on %s (left free: %v, unseen: %v) arrived by %v; want %v",
					tt.d.Name, a.Free, a.Unseen, words, want)
			}
		}
	}
}

// TestWhatWaitsForTheDisk: on PostgreSQL a swap that leaves nobody in line, and no mark, commits without waiting for
// the disk. All others promise something to somebody.
func TestWhatWaitsForTheDisk(t *testing.T) {
	for _, tt := range []struct {
		what    string
		content swaplock.Content
		lazy    bool
	}{
		{"a Leave of the only claim", swaplock.Content{Last: 7}, true},
		{"a grant", swaplock.Content{Last: 7, Holder: "a", Expires: time.Now(), Document: []byte("{}")}, false},
		{"a Leave with a mark", swaplock.Content{Last: 7, Mark: "m", MarkedBy: "a"}, false},
		{"a Leave of a claim that has drawn a token", swaplock.Content{Last: 8}, false},
		{"a tombstone, or a place that lingers", swaplock.Content{Last: 7, Document: []byte("{}")}, false},
	} {
		for _, d := range []*Dialect{Postgres, MySQL, SQLite} {
			conns := &asked{rows: 1}
			c := &swaplock.Change{If: "1", IfLast: 7, Before: time.Now(), Content: tt.content}
			steps.Must(t, steps.ErrOf(New(conns, d, Options{}).Swap(t.Context(), "k", c)))
			got := strings.Contains(conns.all[0].Text, "synchronous_commit")
			if got != (tt.lazy && d == Postgres) {
				t.Errorf("%s on %s does not wait for the disk: %v", tt.what, d.Name, got)
			}
		}
	}
}

// TestNewsIsToldToTheProcessesThatItConcerns: each listens to a channel of its own, so that a lock that many wait for does
// not wake all of them at each hand-over.
func TestNewsIsToldToTheProcessesThatItConcerns(t *testing.T) {
	c := &swaplock.Change{Content: swaplock.Content{Document: []byte("{}")}, News: []swaplock.News{
		{Token: 1}, {Token: 2, Node: "a"}, {Token: 3, Node: "b"}, {Token: 4, Node: "a"},
	}}
	st := New(nil, Postgres, Options{}).swap("k", 1, 0, c)
	steps.Same(t, "those who are told", st.Args[len(st.Args)-1], any("{fencelock_news_a,fencelock_news_b}"))
	c.News = c.News[:1]
	if st := New(nil, Postgres, Options{}).swap("k", 1, 0, c); strings.Contains(st.Text, "pg_notify") {
		t.Error("there is nobody who listens, and the database is told to notify")
	}
}

// TestResultOfOtherColumnsIsAnError: it must not be taken for a row of zeros.
func TestResultOfOtherColumnsIsAnError(t *testing.T) {
	var a, b int64
	for _, values := range [][]any{{int64(1)}, {int64(1), int64(2), int64(3)}, {int64(1), "x"}} {
		if err := scan(values, []any{&a, &b}); err == nil {
			t.Errorf("%v was scanned into two numbers", values)
		}
	}
}

// TestNewsAreToldOnceOrNotAtAll: what a poll returns has the news of some swaps. If one is missing that the client has
// not heard of, it must read the line.
func TestNewsAreToldOnceOrNotAtAll(t *testing.T) {
	a, b := swaplock.News{Token: 7, Grant: "0123456789abcdef"}, swaplock.News{Token: 8}
	change := func(news ...swaplock.News) *swaplock.Change {
		return &swaplock.Change{News: news, Content: swaplock.Content{Document: []byte("{}")}}
	}
	text := told(12, change(b)) + "11 ;" + told(10, change(b, a)) + "9 ;8 7:"
	for _, tt := range []struct {
		from, to int64
		want     []swaplock.News
		ok       bool
	}{
		{11, 12, []swaplock.News{b}, true},
		{10, 12, []swaplock.News{b}, true},
		{9, 12, []swaplock.News{b, a, b}, true},
		{8, 12, []swaplock.News{b, a, b}, true},
		{7, 12, nil, false}, // it is cut off
		{11, 13, nil, false},
		{0, 12, nil, false},
	} {
		if got, ok := untold(text, tt.from, tt.to); ok != tt.ok || !slices.Equal(got, tt.want) {
			t.Errorf("from %d to %d: %v, %v; want %v, %v", tt.from, tt.to, got, ok, tt.want, tt.ok)
		}
	}
	steps.Same(t, "the news of an empty line", told(3, &swaplock.Change{News: []swaplock.News{a}}), "")
}
