package main

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
)

// checkLocal puts the file into the user's state directory. Where there is none, it
// does not guess: two guesses would be two locks.
func checkLocal(p *place) error {
	if p.url.Opaque != "" || p.url.Host != "" || p.url.Path != "" {
		return usage("local: takes nothing behind the colon; a file of your own is sqlite:///path")
	}
	dir, err := stateDir()
	if err != nil {
		return err
	}
	dir = filepath.Join(dir, "fencelock")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(exitConfig, "cannot make the directory of the embedded default: %v; set HOME or XDG_STATE_HOME, or %s", err, envURL)
	}
	p.url.Path = filepath.Join(dir, "locks.db")
	p.text = "sqlite " + p.url.Path
	return nil
}

func stateDir() (string, error) {
	// The XDG specification says to ignore what is not absolute.
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	if runtime.GOOS == "windows" {
		if dir := os.Getenv("LocalAppData"); filepath.IsAbs(dir) {
			return dir, nil
		}
	}
	if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state"), nil
	}
	return "", fail(exitConfig, "there is no home directory for the embedded default; set HOME or XDG_STATE_HOME, or say with %s where the locks are", envURL)
}

// defaultNotice warns that the embedded default excludes less than one may think.
func defaultNotice(p *place) string {
	where := "on this host for user " + userName() + " only (" + p.url.Path + ")"
	if inContainer() {
		where += ", and other containers do not see this lock"
	}
	return fmt.Sprintf("%s; set %s, or --url local: to silence", where, envURL)
}

func userName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return strconv.Itoa(os.Getuid())
}

func inContainer() bool {
	for _, f := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(f); err == nil {
			return true
		}
	}
	return os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}
