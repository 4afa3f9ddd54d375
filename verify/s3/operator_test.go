// Package s3 runs the laws and faults of s3lock on servers of S3.
package s3

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/s3lock"
	"github.com/fencelock/fencelock/storeurl"
)

// An operator reads who holds a lock, and who waits, from the object.
func TestOperatorReadsALine(t *testing.T) {
	url := fakeS3(t)
	b := views(url)(t)
	holder, waiter := steps.Claim("orders/42"), steps.Claim("orders/42")
	holder.Owner, waiter.Owner = "web-1/4711", "web-2/815"
	token := steps.Enter(t, b, holder).Token
	steps.Enter(t, b, waiter)

	o, err := s3lock.AWS(dial(url), testserver.S3Bucket).Get(t.Context(), "fencelock/line/orders!2F42")
	steps.Must(t, err)
	var object struct {
		Key, Holder string
		Last        int64
		Leases      []struct{ Until time.Time }
		Line        struct {
			Claims []struct {
				ID, Owner string
				Token     int64
				Granted   bool
			}
		}
	}
	steps.Must(t, json.Unmarshal(o.Body, &object))
	claims := object.Line.Claims
	if object.Key != "orders/42" || object.Holder != holder.ID || len(object.Leases) != 1 ||
		object.Leases[0].Until.IsZero() || len(claims) != 2 ||
		claims[0].Owner != "web-1/4711" || claims[0].Token != token || !claims[0].Granted ||
		claims[1].Owner != "web-2/815" || claims[1].Granted || object.Last != claims[1].Token {
		t.Errorf("the object has %s", o.Body)
	}
}

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
	err = other.Ping(t.Context())
	if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "create the bucket") {
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

// dial returns a client of its own for a server at url.
func dial(url string) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &url, Region: "us-east-1", UsePathStyle: true,
		Credentials: aws.NewCredentialsCache(
			credentials.NewStaticCredentialsProvider(testserver.S3Key, testserver.S3Secret, "")),
	})
}

// fakeS3 starts a gofakes3 with a bucket, and returns its URL.
func fakeS3(t *testing.T) string {
	backend := s3mem.New()
	server := httptest.NewServer(gofakes3.New(backend, gofakes3.WithoutVersioning()).Server())
	t.Cleanup(server.Close)
	steps.Must(t, backend.CreateBucket(testserver.S3Bucket))
	return server.URL
}

// versityGW starts a versitygw with a bucket, and returns its URL.
func versityGW(t *testing.T) string { return "http://" + testserver.S3(t).Addr() }

// late is how much later than its lease a claim ends: two seconds are the grace, and one is the clock's.
const late = 4 * time.Second

// views opens backends with a client each.
func views(url string) drivertest.Opener {
	return func(t *testing.T) driver.Backend {
		b := s3lock.New(s3lock.AWS(dial(url), testserver.S3Bucket), nil)
		t.Cleanup(func() { b.Close() })
		return b
	}
}

func TestLawsOnAServer(t *testing.T) {
	drivertest.Run(t, views(fakeS3(t)), drivertest.ExpiryLag(late), drivertest.Polls(),
		drivertest.Topics("Grant", "Look", "Close"))
}
