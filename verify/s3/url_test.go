package s3

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/doctor"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
)

// The command and services open a bucket by its URL, with what the environment says of AWS.
func TestURLOpensABucket(t *testing.T) {
	for name, value := range testserver.S3Environment() {
		t.Setenv(name, value)
	}
	endpoint := fakeS3(t)
	store, err := storeurl.Open(t.Context(), "s3://"+testserver.S3Bucket+"/app?poll=100ms&endpoint="+endpoint)
	steps.Must(t, err)
	defer store.Close()
	steps.OK(t, store.Ping(t.Context()))
	c, err := fencelock.New(store.Backend, nil)
	steps.Must(t, err)
	lease, err := c.Lock(t.Context(), "orders/42")
	steps.Must(t, err)
	steps.OK(t, lease.Release(t.Context()))
	_ = c.Close()

	other, err := storeurl.Open(t.Context(), "s3://nowhere?endpoint="+endpoint)
	steps.Must(t, err)
	defer other.Close()
	if err := other.Ping(t.Context()); !errors.Is(err, driver.ErrPermanent) || !strings.Contains(fmt.Sprint(err), "create the bucket") {
		t.Errorf("a bucket that is not there: %v", err)
	}
}

func TestURLWithoutCredentialsSaysWhatToSet(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	store, err := storeurl.Open(t.Context(), "s3://"+testserver.S3Bucket)
	steps.Must(t, err)
	defer store.Close()
	var bad *storeurl.ConfigError
	if err := store.Ping(t.Context()); !errors.As(err, &bad) || !strings.Contains(err.Error(), "set AWS_ACCESS_KEY_ID") {
		t.Errorf("got %v", err)
	}
}

func TestNobodyWinsTwice(t *testing.T) {
	url := fakeS3(t)
	var backends []driver.Backend
	for range 8 {
		backends = append(backends, views(url)(t))
	}
	got, err := doctor.Race(t.Context(), backends, 32, 10)
	if err != nil || !got.Excludes() {
		t.Errorf("got %+v, %v", got, err)
	}
	t.Logf("%+v", got)
}
