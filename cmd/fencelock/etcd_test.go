//go:build unix

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/internal/testserver"
)

// TestPasswordOfEtcdIsAskedAndNotTold uses an etcd with authentication.
func TestPasswordOfEtcdIsAskedAndNotTold(t *testing.T) {
	server := testserver.Etcd(t)
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, step := range []func() error{
		func() error { _, err := root.UserAdd(ctx, "root", "s3cr3t/#"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := root.AuthEnable(ctx); return err },
	} {
		must(t, step())
	}
	for _, c := range []struct {
		url, password string
		code          int
		line          string
	}{
		{"etcd://root:s3cr3t%2F%23@" + server.Addr() + "/p", "", 0, ""},
		{"etcd://root@" + server.Addr() + "/p", "s3cr3t/#", 0, ""},
		{"etcd://root@" + server.Addr() + "/p", "wr0ng", exitConfig, "refuses the user or the password"},
		{"etcd://" + server.Addr() + "/p", "", exitConfig, "wants a password"},
	} {
		s := newStage(t, c.url)
		t.Setenv(envPassword, c.password)
		code, p := s.run("fencelock", "run", "-v", "n", "--", "env")
		if code != c.code || !strings.Contains(p.err.String(), c.line) {
			t.Errorf("exit %d, want %d and %q: %s", code, c.code, c.line, p.err.String())
		}
		for _, secret := range []string{"s3cr3t", "wr0ng"} {
			if said := p.err.String() + p.out.String(); strings.Contains(said, secret) {
				t.Errorf("the password is told: %s", said)
			}
		}
	}
}

// TestKilledHolderOnEtcd: what it held is free when its lease has ended.
func TestKilledHolderOnEtcd(t *testing.T) {
	s := newStage(t, testserver.Etcd(t).URL())
	p := s.start("fencelock", "run", "--ttl", "2", "n", "--", "sh", "-c", "echo $$ >held; exec sleep 60")
	s.pid("held")
	p.signal("KILL")
	killed := time.Now()
	s.wants(0, "run", "-w", "30", "n", "--", "true")
	if took := time.Since(killed); took > 8*time.Second {
		t.Errorf("a lease of 2s was over after %v", took)
	}
}
