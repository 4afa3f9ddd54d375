package adapters

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/storeurl"
)

// EnvURL has the URL of a store, or of a bridge, for the adapter store.
const EnvURL = "FENCELOCK_STORE"

// openStore is fencelock on the store of EnvURL.
func openStore(_ string, ttl time.Duration, _ func(string)) (library, error) {
	u, err := storeurl.Parse(os.Getenv(EnvURL), storeurl.Source{Name: EnvURL})
	if err != nil {
		return nil, err
	}
	s, err := u.Open(context.Background(), storeurl.Config{MaxConns: 4})
	if err != nil {
		return nil, err
	}
	client, err := fencelock.New(s.Backend, &fencelock.Options{TTL: ttl})
	return clientLock(client), err
}

// clientLock takes the locks of a Client.
func clientLock(c *fencelock.Client) lockFunc {
	return func(ctx context.Context, key string, _ time.Duration) (held, error) {
		l, err := c.Lock(ctx, key)
		if err != nil {
			return held{}, err
		}
		token := strconv.FormatInt(int64(l.Token()), 10)
		return held{token: token, ended: l.Context().Done(), unlock: func() (bool, error) {
			err := l.Release(context.Background())
			return errors.Is(err, fencelock.ErrLost), err
		}}, nil
	}
}
