package mask

import (
	"context"
	"crypto/rand"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// dialect is a dialect of sqllock, on a driver of database/sql.
type dialect struct {
	driver sqldriver.DriverContext
	about  string
	dsn    func(testing.TB) string
	open   func(testing.TB, *sql.DB) driver.Backend
}

// Run holds a dialect of sqllock to what it owes to any driver, of which below is one. dsn names
// a new database each time, open makes a backend on it that ends with the test, and about is
// what the statement of an Enter contains and no other.
func Run(
	t *testing.T, about string, below sqldriver.DriverContext,
	dsn func(testing.TB) string, open func(testing.TB, *sql.DB) driver.Backend,
) {
	d := dialect{below, about, dsn, open}
	t.Run("it only prepares", func(t *testing.T) {
		m := d.masked(t)
		m.Prepares = true
		d.takesTurns(t, m, 0)
	})
	t.Run("it answers ErrSkip", func(t *testing.T) {
		m := d.masked(t)
		m.Skips = true
		// database/sql asks it before it prepares.
		d.takesTurns(t, m, 3)
	})
	for broken := range int32(5) {
		name := fmt.Sprintf("%d connections of the pool are broken", broken)
		t.Run(name, func(t *testing.T) { d.brokenPool(t, broken) })
	}
	t.Run("a connection breaks before the answer", d.breaksBeforeTheAnswer)
	t.Run("an answer has other columns", d.otherColumns)
}

func (d dialect) masked(t *testing.T) *Driver {
	c, err := d.driver.OpenConnector(d.dsn(t))
	if err != nil {
		t.Fatal(err)
	}
	return &Driver{Connector: c, About: d.about}
}

func (d dialect) backend(t *testing.T, c sqldriver.Connector) driver.Backend {
	db := sql.OpenDB(c)
	t.Cleanup(func() { db.Close() })
	b := d.open(t, db)
	leave(t, b, hold(t, b, claim("the first call makes the tables")))
	return b
}

// takesTurns has two claims hold one lock, on a driver whose connections database/sql has to
// prepare each question on.
func (d dialect) takesTurns(t *testing.T, m *Driver, asked int32) {
	b := d.backend(t, m)
	first := hold(t, b, claim("k"))
	second := enter(t, b, claim("k"))
	if second.Granted {
		t.Fatal("two have the lock")
	}
	leave(t, b, first)
	for !second.Granted {
		var err error
		if second, err = b.Await(soon(t), second); err != nil {
			t.Fatal(err)
		}
	}
	if second.Token <= first.Token || second.Owner != "test" || second.Note != "a note" {
		t.Errorf("the second ticket is %+v, after one with token %d", second, first.Token)
	}
	leave(t, b, second)
	if n := m.Asked.Load(); n != asked {
		t.Errorf("it was asked %d times for 3 claims; want %d", n, asked)
	}
}

// A driver that answers ErrBadConn says that nothing has happened, and the question goes
// to another connection.
func (d dialect) brokenPool(t *testing.T, broken int32) {
	m := d.masked(t)
	b := d.backend(t, m)
	m.Sent.Store(0)
	m.Broken.Store(broken)
	leave(t, b, hold(t, b, claim("k")))
	if n := m.Sent.Load(); n != 1 {
		t.Errorf("Enter was sent %d times; want once", n)
	}
}

// One that says so when the answer is read has sent it, and that is not done twice.
func (d dialect) breaksBeforeTheAnswer(t *testing.T) {
	m := d.masked(t)
	b := d.backend(t, m)
	m.Sent.Store(0)
	m.Breaks.Store(1)
	c := claim("k")
	_, err := b.Enter(soon(t), c)
	var p *driver.PermanentError
	if err == nil || errors.As(err, &p) || driver.Gone(err) {
		t.Errorf("Enter answered %v; want an error that leaves its outcome open", err)
	}
	if n := m.Sent.Load(); n != 1 {
		t.Errorf("Enter was sent %d times; want once", n)
	}
	leave(t, b, hold(t, b, c))
}

// That must be an error, not a panic, and nothing that is believed.
func (d dialect) otherColumns(t *testing.T) {
	m := d.masked(t)
	b := d.backend(t, m)
	m.Narrow = true
	c := claim("k")
	if _, err := b.Enter(soon(t), c); err == nil || !strings.Contains(err.Error(), "columns") {
		t.Errorf("Enter answered %v; want an error about its columns", err)
	}
	m.Narrow = false
	leave(t, b, hold(t, b, c))
}

func claim(key string) driver.Claim {
	return driver.Claim{
		Key: key, ID: rand.Text(), Owner: "test", Note: "a note",
		Capacity: driver.RW, Weight: driver.RW, TTL: time.Minute, Span: 1,
	}
}

func enter(t *testing.T, b driver.Backend, c driver.Claim) driver.Ticket {
	t.Helper()
	ticket, err := b.Enter(soon(t), c)
	if err != nil {
		t.Fatalf("Enter on %q: %v", c.Key, err)
	}
	return ticket
}

func hold(t *testing.T, b driver.Backend, c driver.Claim) driver.Ticket {
	t.Helper()
	ticket := enter(t, b, c)
	if !ticket.Granted {
		t.Fatalf("Enter on %q was not granted; want a grant", c.Key)
	}
	return ticket
}

func leave(t *testing.T, b driver.Backend, ticket driver.Ticket) {
	t.Helper()
	if err := b.Leave(soon(t), ticket, driver.Exit{}); err != nil {
		t.Fatalf("Leave on %q: %v", ticket.Key, err)
	}
}

// soon ends with the test, or after 20 seconds.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}
