package main

import (
	"context"
	"path/filepath"
	"strings"
)

// makeSBOM lists, in CycloneDX, the modules that the linker put into a binary. It has
// neither serial number nor time, for both would differ from one run to the next.
func (r *release) makeSBOM(ctx context.Context, t platform, binary string) error {
	tool, err := r.tool(ctx, "cyclonedx-gomod")
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(filepath.Base(binary), ".exe") + strings.TrimPrefix(r.base(t), "fencelock")
	target := filepath.Join(r.files(), name+".cdx.json")
	args := []string{
		"bin", "-json", "-std", "-noserial", "-notimestamp", "-version", r.version, "-output", target, binary,
	}
	_, err = output(ctx, command{name: tool, args: args})
	return err
}
