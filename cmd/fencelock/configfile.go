package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/BurntSushi/toml"

	"github.com/fencelock/fencelock/internal/clean"
)

// configName is the name of a config file in a working directory and its parents.
const configName = "fencelock.toml"

// configFile names a store for all who work below its folder. What stands beside url belongs
// to that URL: none of it is used for a URL from elsewhere.
type configFile struct {
	URL          string `toml:"url"`
	PasswordFile string `toml:"password_file"`
	CA           string `toml:"ca"`
	Cert         string `toml:"cert"`
	Key          string `toml:"key"`
	History      bool   `toml:"history"`

	path string // "" if there is no such file
}

// configPaths are where a config file is looked for: the working directory, its parents from
// the nearest on, and the user's folder for settings.
func configPaths() []string {
	var paths []string
	if dir, err := os.Getwd(); err == nil {
		for {
			paths = append(paths, filepath.Join(dir, configName))
			parent := filepath.Dir(dir)
			if parent == dir {
				break
			}
			dir = parent
		}
	}
	if dir, err := os.UserConfigDir(); err == nil {
		paths = append(paths, filepath.Join(dir, "fencelock", configName))
	}
	return paths
}

// findConfig reads the first config file that there is. A file that others may write is
// refused: it could send the user's locks, and a password, to a store of theirs. To go on
// without it would take the locks in the default store, where they exclude nobody elsewhere.
func findConfig() (configFile, error) {
	for _, path := range configPaths() {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue // a link to a file that is not there is not meant to be left out
		}
		info, err := os.Stat(path)
		switch {
		case err == nil && !onlyOwn(info):
			return configFile{}, fail(exitConfig, "%s may have been written by somebody else: it must belong to you "+
				"or to root, and nobody else may write it (chmod go-w); or give --url or %s", quote(path), envURL)
		}
		return readConfig(path)
	}
	return configFile{}, nil
}

func readConfig(path string) (configFile, error) {
	f := configFile{path: path}
	text, err := os.ReadFile(path)
	if err != nil {
		return f, fail(exitConfig, "%s cannot be read: %v", quote(path), err)
	}
	seen, err := toml.Decode(clean.Text(text), &f)
	if err != nil {
		return f, fail(exitConfig, "%s cannot be read: %v", quote(path), err)
	}
	if unknown := seen.Undecoded(); len(unknown) > 0 {
		return f, fail(exitConfig, "%s has the unknown setting %s; known are url, password_file, ca, cert, key "+
			"and history", quote(path), unknown[0])
	}
	for _, value := range []*string{&f.URL, &f.PasswordFile, &f.CA, &f.Cert, &f.Key} {
		*value = clean.Value(*value)
	}
	if f.URL == "" {
		return f, fail(exitConfig, "%s names no store; add url = \"…\"", quote(path))
	}
	for _, file := range []*string{&f.PasswordFile, &f.CA, &f.Cert, &f.Key} {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(filepath.Dir(path), *file)
		}
	}
	return f, nil
}
