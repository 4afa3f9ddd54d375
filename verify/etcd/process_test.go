package etcd_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestProcessesNeverOverlap(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	file := filepath.Join(t.TempDir(), "count")
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	const workers, holds = 4, 50
	var ps []*process
	for range workers {
		ps = append(ps, x.start(order{Do: "count", Key: "counter", TTL: time.Minute, N: holds, File: file}))
	}
	for _, p := range ps {
		p.succeeds()
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != fmt.Sprint(workers*holds) {
		t.Errorf("the guarded counter is at %s; want %d: two processes held the lock at once", text, workers*holds)
	}
	log, err := os.ReadFile(file + ".log")
	if err != nil {
		t.Fatal(err)
	}
	last := int64(0)
	for line := range strings.FieldsSeq(string(log)) {
		token, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if token <= last {
			t.Fatalf("token %d was granted after %d", token, last)
		}
		last = token
	}
}

func TestKilledHolderIsGoneAfterItsLease(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	p := x.start(order{Do: "queue", Key: "k", TTL: lease})
	p.hears("held")
	b := x.backend()
	w := wait(t, b, claim("k"))
	p.kill()
	killed := time.Now()
	w = granted(t, b, w)
	if took := time.Since(killed); took > lease+lag {
		t.Errorf("the next in line got the lock %v after its holder was killed; want at most %v", took, lease+lag)
	}
	leave(t, b, w)
}

func TestKilledWaiterDelaysNobodyBeyondItsLease(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	b := x.backend()
	holder := hold(t, b, claim("k"))
	p := x.start(order{Do: "queue", Key: "k", TTL: lease})
	p.hears("waits")
	behind := wait(t, b, claim("k"))
	p.kill()
	killed := time.Now()
	leave(t, b, holder)
	behind = granted(t, b, behind)
	if took := time.Since(killed); took > lease+lag {
		t.Errorf("a killed waiter held up the line for %v; want at most %v", took, lease+lag)
	}
	leave(t, b, behind)
}

// TestKilledAtAnyMomentNothingStays kills processes at random while others work.
func TestKilledAtAnyMomentNothingStays(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	x := newScene(t)
	work := order{Do: "storm", Key: "k", TTL: lease}
	ps := []*process{x.start(work), x.start(work)}
	for _, p := range ps {
		p.hears("works")
	}
	for range 8 {
		sleep(time.Duration(rng.IntN(60_000)) * time.Microsecond)
		i := rng.IntN(len(ps))
		ps[i].kill()
		ps[i] = x.start(work)
	}
	for _, p := range ps {
		p.kill()
	}
	killed := time.Now()
	b := x.backend()
	for i := range 3 {
		leave(t, b, granted(t, b, enter(t, b, claim(fmt.Sprint("k", i)))))
	}
	if took := time.Since(killed); took > lease+lag {
		t.Errorf("the locks were held by ghosts for %v; want at most %v", took, lease+lag)
	}
}
