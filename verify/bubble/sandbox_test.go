//go:build !wasip1

package bubble_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// mostReadings is how often a machine may read its clock. Go does now and then when goroutines
// take turns; a program needs some hundreds of them.
const mostReadings = 1_000_000

// sandbox runs programs so that each has one history. It runs the tests as WebAssembly, where
// goroutines take turns on one thread. The clock moves by its readings, and the random numbers
// follow from the program.
type sandbox struct {
	runtime wazero.Runtime
	guest   wazero.CompiledModule
}

func newSandbox(t *testing.T) *sandbox {
	code, err := os.ReadFile(build(t, "GOOS=wasip1", "GOARCH=wasm"))
	steps.Must(t, err)
	ctx := context.Background()
	s := &sandbox{runtime: wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig())}
	t.Cleanup(func() { s.runtime.Close(ctx) })
	steps.Must(t, steps.ErrOf(wasi_snapshot_preview1.Instantiate(ctx, s.runtime)))
	if s.guest, err = s.runtime.CompileModule(ctx, code); err != nil {
		t.Fatal(err)
	}
	return s
}

// build builds the tests of this package, without the race detector, and returns the file.
func build(t *testing.T, env ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bubble.test")
	cmd := exec.Command("go", "test", "-race=false", "-c", "-o", path, ".")
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return path
}

// run runs p. A program that crashes the machine, or asks for the time without end, is at
// fault.
func (s *sandbox) run(t *testing.T, p program) outcome {
	t.Helper()
	in, err := json.Marshal(p)
	steps.Must(t, err)
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], p.Order)
	clock, readings := int64(0), 0
	tick := func() int64 { // in ns; there is one thread
		if readings++; readings > mostReadings {
			panic(fmt.Sprintf("the clock was read %d times: the program does not end", readings))
		}
		clock += 1000
		return clock
	}
	var out, crash bytes.Buffer
	ctx := context.Background()
	machine, err := s.runtime.InstantiateModule(ctx, s.guest, wazero.NewModuleConfig().WithName("").
		WithArgs("guest", "-test.run=^TestGuest$", "-test.timeout=0").
		WithStdin(bytes.NewReader(in)).WithStdout(&out).WithStderr(&crash).
		WithRandSource(rand.NewChaCha8(seed)).
		WithNanotime(tick, 1).
		WithWalltime(func() (int64, int32) { now := tick(); return now / 1e9, int32(now % 1e9) }, 1).
		WithNanosleep(func(ns int64) { clock += ns }))
	if machine != nil {
		machine.Close(ctx)
	}
	var o outcome
	if bad := json.Unmarshal(out.Bytes(), &o); bad != nil {
		o.Faults = append(o.Faults, fmt.Sprintf("the machine ended: %v\n%s%s", err, &out, &crash))
	}
	return o
}
