package storeurl

import (
	"context"
	"net/url"

	"github.com/fencelock/fencelock/memlock"
)

func checkMemory(u *URL, rest *url.URL) error {
	u.text = "memory"
	if err := u.onlySettings(); err != nil {
		return err
	}
	return u.nothing(rest, "")
}

func openMemory(context.Context, *URL, *Config) (*Store, error) {
	b := memlock.New()
	return &Store{Backend: b, ping: readLine(b), close: func() {}}, nil
}
