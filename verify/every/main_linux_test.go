package every

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// inside says that this process is in namespaces of its own.
const inside = "FENCELOCK_TEST_NAMESPACE"

// TestMain runs the tests in namespaces of their own, with a loopback interface and disks that
// nobody else sees. Root makes them directly; other users make a user namespace first.
func TestMain(m *testing.M) {
	if os.Getenv(inside) == "" {
		os.Exit(enter())
	}
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "preparing the namespaces:", err)
		os.Exit(1)
	}
	// Tests wait most of the time, some of them for those of all other stores.
	flag.Parse()
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := stopServers(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// CAP_NET_ADMIN and CAP_SYS_ADMIN of the kernel.
const netAdmin, sysAdmin = 12, 21

// enter runs this program again in a namespace, and returns its exit code.
func enter() int {
	// What is built before it is first used may need the network for it.
	if err := buildEtcd(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{netAdmin, sysAdmin}
	}
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "these tests need namespaces: %v; run them as root, or allow user namespaces\n", err)
		return 1
	}
	return 0
}

func buildEtcd() error {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := testserver.StartEtcd(context.Background(), dir)
	if err != nil {
		return err
	}
	return s.Stop()
}

// prepare keeps mounts to this namespace, gives it its loopback interface, and lets rules
// come before the one that delivers what is for this host.
func prepare() error {
	// What is mounted here is mounted nowhere else.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"rule", "add", "pref", "100", "lookup", "local"},
		{"rule", "del", "pref", "0"},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return nil
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %v: %w: %s (scripts/servers.sh installs it, in the package iproute2)", args, err, out)
	}
	return nil
}

// direction is one way between a client and its server.
type direction string

const (
	toServer direction = "to"
	toClient direction = "from"
)

var rules = struct {
	sync.Mutex
	number int
}{number: 10}

// cut drops what goes one way between a client and its server at an address. No side sees the end
// of a connection, and the other way is open. It returns what mends it.
func (s *store) cut(t testing.TB, addr string, d direction) (mend func()) {
	t.Helper()
	if s.from {
		d = map[direction]direction{toServer: toClient, toClient: toServer}[d]
	}
	// ip changes rules one at a time, or numbers may be taken twice.
	rules.Lock()
	defer rules.Unlock()
	rule := []string{"pref", fmt.Sprint(rules.number), string(d), addr, "blackhole"}
	if rules.number++; rules.number == 99 {
		rules.number = 10
	}
	steps.Must(t, ip(append([]string{"rule", "add"}, rule...)...))
	return func() {
		rules.Lock()
		defer rules.Unlock()
		steps.OK(t, ip(append([]string{"rule", "del"}, rule...)...))
	}
}
