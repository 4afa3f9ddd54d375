package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/module"
)

// tags fetches each module from git, as a module proxy does after a release, and
// compares its sums with those that go.sum files of the release have.
func (t *trial) tags(ctx context.Context) error {
	env := append(t.env,
		"GOPROXY=direct", "GOMODCACHE="+filepath.Join(t.dir, "direct"), "GOSUMDB=off",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_VALUE_0=https://"+rootPath,
		"GIT_CONFIG_KEY_0=url."+fileURL(t.release.clone())+".insteadOf")
	for _, m := range t.release.modules {
		args := []string{"mod", "download", "-json", m.path + "@" + t.release.version}
		text, err := output(ctx, command{dir: t.release.work(), env: env, name: "go", args: args})
		if err != nil {
			return err
		}
		var fetched struct{ Sum, GoModSum string }
		if err := json.Unmarshal([]byte(text), &fetched); err != nil {
			return err
		}
		made, err := t.proxySums(m)
		if err != nil {
			return err
		}
		if got := (sums{fetched.Sum, fetched.GoModSum}); got != made {
			return fmt.Errorf("%s: git gives %+v, the release %+v", m.path, got, made)
		}
	}
	return nil
}

// proxySums returns the sums of a module in the proxy of the release.
func (t *trial) proxySums(m goModule) (sums, error) {
	escaped, err := module.EscapePath(m.path)
	if err != nil {
		return sums{}, err
	}
	base := filepath.Join(t.release.proxy(), filepath.FromSlash(escaped), "@v", t.release.version)
	goMod, err := os.ReadFile(base + ".mod")
	if err != nil {
		return sums{}, err
	}
	return hash(base+".zip", string(goMod))
}

// program makes a module outside of the repository, with the README's program in it, and
// runs it.
func (t *trial) program(ctx context.Context) error {
	dir := filepath.Join(t.dir, "program")
	readme, err := os.ReadFile(filepath.Join(t.release.clone(), "README.md"))
	if err != nil {
		return err
	}
	server, err := url.Parse(t.redis)
	if err != nil {
		return err
	}
	text, err := readmeProgram(string(readme), server.Host)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o644); err != nil {
		return err
	}
	at := func(path string) string { return path + "@" + t.release.version }
	for _, args := range [][]string{
		{"mod", "init", "example.com/readme"},
		{"get", at(rootPath), at(rootPath + "/redislock"), at(rootPath + "/storeurl")},
		{"build", "-o", "readme", "."},
		{"build", rootPath + "/storeurl"},
	} {
		if _, err := output(ctx, command{dir: dir, env: t.env, name: "go", args: args}); err != nil {
			return err
		}
	}
	out, err := output(ctx, command{dir: dir, env: t.env, name: "./readme"})
	if err != nil {
		return err
	}
	if want := "one at a time, with token "; !strings.Contains(out, want) {
		return fmt.Errorf("the README's program did not print %q: %s", want, out)
	}
	return nil
}

// install installs the commands as a user does.
func (t *trial) install(ctx context.Context) error {
	bin := filepath.Join(t.dir, "bin")
	for path, args := range map[string][]string{commandPath: {"version"}, labPath: {"--lang", "en"}} {
		install := []string{"install", path + "@" + t.release.version}
		env := append(t.env, "GOBIN="+bin)
		if _, err := output(ctx, command{dir: t.dir, env: env, name: "go", args: install}); err != nil {
			return err
		}
		program := filepath.Join(bin, thisPlatform.exe(filepath.Base(path)))
		out, err := output(ctx, command{dir: t.dir, name: program, args: args})
		if err != nil {
			return err
		}
		if path == commandPath && !strings.HasPrefix(out, "fencelock "+t.release.version+" ") {
			return fmt.Errorf("fencelock version prints %q", out)
		}
	}
	return nil
}
