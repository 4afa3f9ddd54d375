package every

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// wall is the wall clock of one process and of those that it starts later. Programs read the
// time by code of the kernel's vDSO, which is replaced by code that adds a number.
type wall struct {
	pid int
	at  int64 // where the number is
}

// stubs ask the kernel by a system call, and add the number behind them. RIP-relative
// addresses are filled in.
var stubs = []struct {
	symbol string
	code   []byte
	number int // where the address of the number goes: 4 bytes
}{
	{"__vdso_clock_gettime", []byte{
		0x57, 0x56, // push rdi; push rsi
		0xb8, 228, 0, 0, 0, 0x0f, 0x05, // mov eax, clock_gettime; syscall
		0x5e, 0x5f, // pop rsi; pop rdi
		0x85, 0xff, 0x74, 6, // test edi, edi; jz add: CLOCK_REALTIME
		0x83, 0xff, 5, 0x74, 1, // cmp edi, 5; jz add: CLOCK_REALTIME_COARSE
		0xc3,                         // ret
		0x48, 0x8b, 0x0d, 0, 0, 0, 0, // add: mov rcx, [number]
		0x48, 0x01, 0x0e, 0xc3, // add [rsi], rcx; ret
	}, 24},
	{"__vdso_gettimeofday", []byte{
		0x57, 0xb8, 96, 0, 0, 0, 0x0f, 0x05, 0x5f, // push rdi; mov eax, gettimeofday; syscall; pop rdi
		0x48, 0x85, 0xff, 0x74, 10, // test rdi, rdi; jz end
		0x48, 0x8b, 0x0d, 0, 0, 0, 0, // mov rcx, [number]
		0x48, 0x01, 0x0f, 0xc3, // add [rdi], rcx; end: ret
	}, 17},
	{"__vdso_time", []byte{
		0x57, 0xb8, 201, 0, 0, 0, 0x0f, 0x05, 0x5f, // push rdi; mov eax, time; syscall; pop rdi
		0x48, 0x8b, 0x0d, 0, 0, 0, 0, // mov rcx, [number]
		0x48, 0x01, 0xc8, // add rax, rcx
		0x48, 0x85, 0xff, 0x74, 3, // test rdi, rdi; jz end
		0x48, 0x89, 0x07, 0xc3, // mov [rdi], rax; end: ret
	}, 12},
}

// takeClock replaces the code in a process.
func takeClock(pid int) (w wall, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("replacing the clock of process %d: %w", pid, err)
		}
	}()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return w, err
	}
	var from, to int64
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
				return w, err
			}
		}
	}
	if from == 0 {
		return w, errors.New("it has no vDSO")
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return w, err
	}
	defer mem.Close()
	image := make([]byte, to-from)
	if _, err := io.ReadFull(io.NewSectionReader(mem, from, to-from), image); err != nil {
		return w, err
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return w, err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return w, err
	}
	// Behind the image there is room up to the end of the page.
	free := int64(len(bytes.TrimRight(image, "\x00"))+15) &^ 15
	if free+160 > to-from {
		return w, errors.New("its vDSO has no room")
	}
	w = wall{pid, from + free}
	at := free + 16
	type patch struct {
		at    int64
		bytes []byte
	}
	var heads []patch
	for _, stub := range stubs {
		code := bytes.Clone(stub.code)
		binary.LittleEndian.PutUint32(code[stub.number:], uint32(free-(at+int64(stub.number)+4)))
		if _, err := mem.WriteAt(code, from+at); err != nil {
			return w, err
		}
		found := false
		for _, s := range symbols {
			if s.Name == stub.symbol {
				jump := binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(at-(int64(s.Value)+5)))
				heads = append(heads, patch{from + int64(s.Value), jump})
				found = true
			}
		}
		if !found {
			return w, fmt.Errorf("its vDSO has no %s", stub.symbol)
		}
		at += int64(len(code)+15) &^ 15
	}
	for _, h := range heads { // all of them lead somewhere now
		if _, err := mem.WriteAt(h.bytes, h.at); err != nil {
			return w, err
		}
	}
	return w, nil
}

// step makes the clock be off by d from now on, in the process and those that it has
// started since its code was replaced.
func (w wall) step(d time.Duration) error {
	number := binary.LittleEndian.AppendUint64(nil, uint64(int64(d/time.Second)))
	for _, pid := range append([]int{w.pid}, testserver.Children(w.pid)...) {
		mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_WRONLY, 0)
		if err == nil {
			_, err = mem.WriteAt(number, w.at)
			mem.Close()
		}
		if err != nil && pid == w.pid {
			return err // a child may just have ended
		}
	}
	return nil
}

// clocks are the wall clocks of a store's servers, two of five of a quorum's. The servers
// stand still while their code is replaced. At the end of the test they are right again.
func (s *store) clocks(t testing.TB) []wall {
	t.Helper()
	var all []wall
	for _, one := range s.running[:(len(s.running)+1)/2] {
		if len(all) == 2 {
			break
		}
		steps.Must(t, one.Pause())
		w, err := takeClock(one.Pid())
		for _, pid := range testserver.Children(one.Pid()) {
			// Those that run already have a copy of their own.
			if err == nil {
				_ = syscall.Kill(pid, syscall.SIGSTOP)
				err = testserver.AwaitStop(pid)
				_, _ = takeClock(pid) // it may just have ended
				_ = syscall.Kill(pid, syscall.SIGCONT)
			}
		}
		steps.Must(t, errors.Join(err, one.Continue()))
		all = append(all, w)
	}
	return all
}

func step(t testing.TB, all []wall, d time.Duration) {
	t.Helper()
	for _, w := range all {
		steps.Must(t, w.step(d))
	}
}

// The wall clock of this process is an hour ahead, and then an hour behind: no lock is
// lost, none is granted early, a wait lasts as long as it was told to, and tokens rise. The
// servers' clocks are right.
//
//verify:fault Clocks | the client's wall clock an hour ahead, and behind
func TestWallClockOfAClientIsStepped(t *testing.T) {
	w, err := takeClock(os.Getpid())
	steps.Must(t, err)
	defer func() { steps.Must(t, w.step(0)) }()
	right := time.Now().Unix()
	// All stores see one clock: they go from one step to the next together.
	arrived := make(chan string, len(stores))
	moves := []chan struct{}{make(chan struct{}), make(chan struct{})}
	go func() {
		for i, d := range []time.Duration{time.Hour, -time.Hour} {
			for range stores {
				<-arrived
			}
			steps.OK(t, w.step(d))
			close(moves[i])
		}
	}()
	each(t, func(t *testing.T, s *store) {
		left := len(moves)
		defer func() { // a test that fails holds up nobody
			for range left {
				arrived <- t.Name()
			}
		}()
		next := func() {
			left--
			arrived <- t.Name()
			<-moves[len(moves)-1-left]
		}
		a, b := s.near(t), s.near(t)
		held := lock(t, a, newKey(t))
		last := held.Token()
		if _, err := b.Line(t.Context(), held.Key()); err != nil { // connects, which may take longer than a wait
			t.Fatal(err)
		}
		for _, d := range []time.Duration{time.Hour, -time.Hour} {
			next()
			if off := time.Now().Unix() - right - int64(d/time.Second); off < -2 || off > 300 {
				t.Fatalf("the clock is %d s from where it should be; this test shows nothing", off)
			}
			began, ctx := time.Now(), steps.Soon(t)
			if _, err := b.Lock(ctx, held.Key(), fencelock.Wait(ttl/4)); !errors.Is(err, fencelock.ErrNotAcquired) {
				t.Errorf("with the clock off by %v a lock that is held was answered with %v", d, err)
			}
			if took := time.Since(began); took < ttl/4 || ctx.Err() != nil {
				t.Errorf("with the clock off by %v a wait of %v took %v", d, ttl/4, took)
			}
			again := lock(t, b, newKey(t))
			renewed(t, fmt.Sprintf("a lock from when the clock was off by %v", d), again)
			steps.Well(t, "Renew of the lock from before", held.Renew(t.Context()))
			release(t, "the second", again)
		}
		key := held.Key()
		release(t, "the first", held)
		after := lock(t, b, key)
		if after.Token() <= last {
			t.Errorf("token %d was granted after %d", after.Token(), last)
		}
		release(t, "the last", after)
	})
}

// The wall clock of a server is stepped forward by an hour, and back. Leases that end by it
// are over at once, and the holder is told within its lease. The step back takes nothing from
// anybody. Tokens always rise. Other leases, and a majority with the right time, go on.
//
//verify:fault Clocks | the server's wall clock an hour ahead, and back
func TestWallClockOfTheServerIsStepped(t *testing.T) {
	each(t, func(t *testing.T, s *store) {
		clocks := s.clocks(t)
		defer step(t, clocks, 0)
		ends := s.wall && s.servers == 1
		a, b := s.near(t), s.near(t)
		key := newKey(t)
		held := lock(t, a, key)
		if s.servers > 1 {
			// A majority has granted it. The others do within a renewal, if nobody else asks
			// them first: with a bare majority two clocks that are wrong are too many.
			renewed(t, "the lock of a majority", held)
		}
		second := lockBehind(t, b, key)
		if s.servers == 1 {
			second.inLine(t, b)
		}
		step(t, clocks, time.Hour)
		if ends {
			ended(t, held)
		} else {
			renewed(t, "the lock", held)
			second.waits(t)
			release(t, "the first", held)
		}
		next := second.granted(t, "the next")
		steps.Rises(t, held.Token(), next.Token())
		renewed(t, "the lock of the next", next)
		third := lockBehind(t, a, key)
		if s.servers == 1 {
			third.inLine(t, b)
		}
		step(t, clocks, 0)
		renewed(t, "the lock, when the clock was set back,", next)
		third.waits(t)
		release(t, "the next", next)
		last := third.granted(t, "the last")
		steps.Rises(t, next.Token(), last.Token())
		release(t, "the last", last)
		// Nobody has been in line since before the step.
		fresh := lock(t, b, key)
		steps.Rises(t, last.Token(), fresh.Token())
		release(t, "the one after the last", fresh)
	})
}
