package testserver

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// versityGW is a server of S3 on files. It is not installed from anywhere: Go builds it before it is first used.
const versityGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

// The bucket of an S3 server, and who may use it.
const (
	S3Bucket = "locks"
	S3Key    = "fencelock"
	S3Secret = "fencelock-secret"
)

// S3Environment returns the variables that a client of such a server needs.
func S3Environment() map[string]string {
	return map[string]string{"AWS_ACCESS_KEY_ID": S3Key, "AWS_SECRET_ACCESS_KEY": S3Secret}
}

// S3 starts a server of S3 with one bucket for a test.
var S3 = forTest(findS3)

// StartS3 starts a server of S3 with one bucket in a folder.
var StartS3 = inFolder(findS3)

var s3Program = sync.OnceValues(func() (string, error) {
	if program := os.Getenv("FENCELOCK_VERSITYGW"); program != "" {
		return program, nil
	}
	return built(os.TempDir(), versityGW)
})

func findS3() (kind, error) {
	program, err := s3Program()
	return kind{
		name:    "versitygw",
		program: program,
		prepare: func(s *Server) error {
			return os.MkdirAll(filepath.Join(s.dir, "data", S3Bucket), 0o700)
		},
		args: func(s *Server) []string {
			return []string{
				"--port", s.Addr(), "--access", S3Key, "--secret", S3Secret, "--keep-alive", "--quiet",
				"posix", filepath.Join(s.dir, "data"),
			}
		},
		ready: func(ctx context.Context, s *Server) error {
			answer, err := s.exchange(ctx, "GET /"+S3Bucket+" HTTP/1.0\r\n\r\n", io.ReadAll)
			if err == nil && !strings.Contains(answer, " 403 ") { // the request has no signature
				err = fmt.Errorf("it does not serve: %s", answer)
			}
			return err
		},
		url: func(s *Server) string {
			return fmt.Sprintf("s3://%s?endpoint=http://%s&region=us-east-1", S3Bucket, s.Addr())
		},
	}, err
}
