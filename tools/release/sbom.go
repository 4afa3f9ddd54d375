package main

import (
	"context"
	"path/filepath"
)

// makeSBOM lists, in CycloneDX, the modules that the linker put into a binary. It has
// neither serial number nor time, for both would differ from one run to the next.
func (r *release) makeSBOM(ctx context.Context, t platform, binary string) error {
	tool, err := r.tool(ctx, "cyclonedx-gomod")
	if err != nil {
		return err
	}
	target := filepath.Join(r.files(), r.base(t)+".cdx.json")
	args := []string{
		"bin", "-json", "-std", "-noserial", "-notimestamp", "-version", r.version, "-output", target, binary,
	}
	_, err = output(ctx, command{name: tool, args: args})
	return err
}
