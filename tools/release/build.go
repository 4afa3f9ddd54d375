package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	commandPath = rootPath + "/cmd/fencelock"
	labPath     = rootPath + "/lab/cmd/fencelock-lab"
)

// platform is a system and a processor, by the names that Go has for them.
type platform struct{ os, arch string }

var platforms = []platform{
	{"linux", "amd64"}, {"linux", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
}

var thisPlatform = platform{runtime.GOOS, runtime.GOARCH}

func (t platform) String() string { return t.os + "/" + t.arch }

// exe is the file name of a program.
func (t platform) exe(name string) string {
	if t.os == "windows" {
		return name + ".exe"
	}
	return name
}

// outside is the environment of a user who has no clone. Modules of ours come from the
// proxy of the release, the others from this machine's module cache or from its proxy.
// The module cache is one of the release: the machine's must not keep what was never
// published. With -trimpath what is compiled is the same in every folder, so it is cached.
func (r *release) outside(ctx context.Context) ([]string, error) {
	vars, err := output(ctx, command{name: "go", args: []string{"env", "GOMODCACHE", "GOPROXY", "GOCACHE"}})
	if err != nil {
		return nil, err
	}
	v := strings.Split(vars, "\n")
	if len(v) != 3 {
		return nil, fmt.Errorf("go env printed %q", vars)
	}
	proxies := []string{fileURL(r.proxy()), fileURL(filepath.Join(v[0], "cache", "download")), v[1]}
	gopath := filepath.Join(r.work(), "gopath")
	return []string{
		"GOPROXY=" + strings.Join(proxies, ","),
		"GOPATH=" + gopath, "GOMODCACHE=" + filepath.Join(gopath, "pkg", "mod"), "GOCACHE=" + v[2], "GOBIN=",
		// The checksum database learns of a release from its first users.
		"GONOSUMDB=" + rootPath + "," + rootPath + "/*",
		"GOFLAGS=-modcacherw -trimpath", "GOWORK=off", "GOPRIVATE=", "GONOPROXY=",
		"CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GODEBUG=",
	}, nil
}

func fileURL(dir string) string {
	dir = filepath.ToSlash(dir)
	if !strings.HasPrefix(dir, "/") { // C:/…
		dir = "/" + dir
	}
	return "file://" + dir
}

// programs are the command, and on systems that have a redis-server the lab with it.
func (t platform) programs() []string {
	if t.os == "windows" {
		return []string{commandPath}
	}
	return []string{commandPath, labPath}
}

// build builds a program from the module proxy, as go install does for a user, and
// returns where it is. grpcnotrace leaves the trace pages of gRPC out. They need
// html/template, with which the linker keeps every method of every type: 10 MB.
func (r *release) build(ctx context.Context, t platform, program string) (string, error) {
	env, err := r.outside(ctx)
	if err != nil {
		return "", err
	}
	args := []string{
		"install", "-ldflags=-s -w", "-tags=grpcnotrace", program + "@" + r.version,
	}
	env = append(env, "GOOS="+t.os, "GOARCH="+t.arch)
	if _, err := output(ctx, command{dir: r.work(), env: env, name: "go", args: args}); err != nil {
		return "", err
	}
	bin := filepath.Join(r.work(), "gopath", "bin")
	if t != thisPlatform {
		bin = filepath.Join(bin, t.os+"_"+t.arch)
	}
	binary := filepath.Join(bin, t.exe(path.Base(program)))
	_, err = os.Stat(binary)
	return binary, err
}
