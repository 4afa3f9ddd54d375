package migratelock_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/integrations/migratelock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/memlock"
)

// slow is a driver whose migrations run until end is closed, also while it is being closed.
type slow struct {
	database.Driver
	begun, end chan struct{}
}

func (s *slow) Run(m io.Reader) error {
	close(s.begun)
	<-s.end
	return s.Driver.Run(m)
}

func newMigrate(t *testing.T, d database.Driver) *migrate.Migrate {
	t.Helper()
	files, err := iofs.New(migrations, ".")
	steps.Must(t, err)
	m, err := migrate.NewWithInstance("files", files, "shop", d)
	steps.Must(t, err)
	return m
}

// A handler of SIGTERM closes the Migrate while Up runs. The statement in the database goes on: the next
// pod must not begin before its end.
func TestCloseDuringAMigrationKeepsTheLockUntilItsEnd(t *testing.T) {
	d, _ := pod(t, t.TempDir())
	running := &slow{d.Driver, make(chan struct{}), make(chan struct{})}
	d.Driver = running
	m := newMigrate(t, d)
	up := make(chan error, 1)
	go func() { up <- m.Up() }()
	<-running.begun
	closed := make(chan error, 1)
	go func() { _, err := m.Close(); closed <- err }()
	select {
	case err := <-closed:
		t.Fatalf("Close returned %v, and the migration was still running", err)
	case <-time.After(200 * time.Millisecond): // real time: Close must not return, whenever it would
	}
	close(running.end)
	if err := <-up; err == nil {
		t.Error("Up has run all migrations of a closed driver")
	}
	steps.OK(t, <-closed)
}

// migrate gives up a Lock after its LockTimeout, and does not say so to the driver. The lock
// that is granted later belongs to no one.
func TestLockThatMigrateGaveUpIsFreeAfterClose(t *testing.T) {
	store := memlock.New()
	held, err := testclient.New(t, store, nil).Lock(t.Context(), "migrate/shop")
	steps.Must(t, err)
	inner, _ := pod(t, t.TempDir())
	client := testclient.New(t, store, nil)
	m := newMigrate(t, migratelock.Wrap(inner.Driver, client, "migrate/shop", fencelock.Wait(time.Minute)))
	m.LockTimeout = 50 * time.Millisecond
	if err := m.Up(); !errors.Is(err, migrate.ErrLockTimeout) {
		t.Fatalf("Up got %v", err)
	}
	steps.OK(t, steps.ErrOf(m.Close()))
	steps.Must(t, held.Release(t.Context()))
	other := testclient.New(t, store, nil)
	testserver.Eventually(t, time.Minute, "the lock is free", func() bool {
		l, err := other.TryLock(t.Context(), "migrate/shop")
		if err == nil {
			err = l.Release(t.Context())
		}
		return err == nil
	})
	line, err := other.Line(t.Context(), "migrate/shop")
	if err != nil || len(line.Claims) != 0 {
		t.Errorf("the line is %v, %v", line, err)
	}
}
