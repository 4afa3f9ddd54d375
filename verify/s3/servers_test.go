// Package s3 runs the laws and faults of s3lock on servers of S3.
package s3

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/s3lock"
)

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
