//go:build unix

package fence_test

import (
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/internal/worker"
	"github.com/fencelock/fencelock/sqllock"
)

// A holder that is stopped until it has lost its lock, and goes on as if nothing had
// happened, is refused by every guard. Where there is none, its write is the last.
func TestHolderThatWakesUpLateIsRefusedByEveryGuard(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p := plan{
		Locks: sqllock.SQLiteDSN(filepath.Join(t.TempDir(), "locks.db")),
		DSN:   map[string]string{},
		Redis: testserver.Redis(t).URL(),
	}
	p.Etcd = sharedEtcd(t).Addr()
	conn, addr := newZooKeeper(t)
	p.ZK = addr
	for _, path := range []string{"/free", "/fenced", "/held"} {
		createNode(t, conn, path)
	}
	for _, d := range databases {
		p.DSN[d.name] = d.dsn(t)
		db := d.openDSN(t, p.DSN[d.name],
			`CREATE TABLE doc (id INT PRIMARY KEY, body VARCHAR(100) NOT NULL, fence BIGINT NOT NULL DEFAULT 0, writes BIGINT NOT NULL DEFAULT 0)`,
			`INSERT INTO doc (id, body) VALUES (1, ''), (2, ''), (3, ''), (4, '')`)
		steps.Must(t, fence.NewTable(d.dialect, "").Create(ctx, db))
		if d.name == "sqlite" {
			s := httptest.NewServer(service(db))
			defer s.Close()
			p.HTTP = s.URL
		}
	}

	// The first holder writes, and is stopped.
	h := worker.Start(t, p)
	first := h.Hears("held")
	h.Hears("written")
	h.Signal(syscall.SIGSTOP)

	// The lock passes to the second, which writes.
	l := p.lock(ctx)
	defer l.close()
	if old, err := fence.Parse(first); err != nil || l.Token() <= old {
		t.Fatalf("the second holder's token is %v, the first one's %s, %v", l.Token(), first, err)
	}
	doors := p.doors(l)
	for name, d := range doors {
		if s, err := d.read(ctx); err != nil || s != "first" {
			t.Errorf("%s: holds %q, %v, before the second has written", name, s, err)
		}
		steps.Well(t, name+": the second holder's write", d.write(ctx, l.Token(), "second"))
	}

	// The first goes on, and writes before it looks at anything.
	h.Tell()
	h.Signal(syscall.SIGCONT)
	lost, lines := h.Until("err")
	if len(lines) != len(doors) {
		t.Fatalf("the holder tried %d doors of %d", len(lines), len(doors))
	}
	answers := map[string]string{}
	for _, line := range lines {
		name, answer, _ := strings.Cut(line, ": ")
		answers[name] = answer
	}
	for name, d := range doors {
		want, answer := "second", fence.ErrStale.Error()
		if strings.HasSuffix(name, "without a guard") {
			want, answer = "late", "<nil>"
		}
		if name == "redis Script" {
			want = "firstsecond" // it appends
		}
		steps.Same(t, name+": the late write", answers[name], answer)
		if s, err := d.read(ctx); err != nil || s != want {
			t.Errorf("%s: holds %q, %v, want %q", name, s, err, want)
		}
		// The second goes on as before.
		steps.Well(t, name+": the second holder's next write", d.write(ctx, l.Token(), "again"))
	}
	steps.Well(t, "the second holder's lease", l.Err())
	if !strings.HasPrefix(lost, "true") {
		t.Errorf("the late holder's renewal says %q", lost)
	}
}
