package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
)

// shells are those that have completions, with the file name that each looks for.
var shells = map[string]string{
	"bash": "fencelock.bash", "zsh": "_fencelock", "fish": "fencelock.fish", "powershell": "fencelock.ps1",
}

func (r *release) man() string         { return filepath.Join(r.work(), "man") }
func (r *release) completions() string { return filepath.Join(r.work(), "completions") }

// makePages writes the man pages and the completions: the command writes them itself.
func (r *release) makePages(ctx context.Context) error {
	for _, dir := range []string{r.man(), r.completions()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	// The workspace's go.sum has what only this build needs. Without cgo, as the release is built: the two share
	// what is compiled.
	env := []string{"GOWORK=", "GOFLAGS=", "CGO_ENABLED=0", "SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.time.Unix(), 10)}
	program := filepath.Join(r.work(), "pages")
	build := []string{"build", "-trimpath", "-tags=man,grpcnotrace", "-o", program, "./cmd/fencelock"}
	if _, err := output(ctx, command{dir: r.clone(), env: env, name: "go", args: build}); err != nil {
		return err
	}
	man := command{env: env, name: program, args: []string{"man", r.man(), r.version}}
	if _, err := output(ctx, man); err != nil {
		return err
	}
	for shell, file := range shells {
		script, err := output(ctx, command{name: program, args: []string{"completion", shell}})
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.completions(), file), []byte(script+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}
