package s3lock

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// AWS returns the Client for a bucket. The s3.Client stays the caller's; its own retries are not used.
func AWS(client *s3.Client, bucket string) Client { return &awsClient{client, bucket} }

type awsClient struct {
	s3     *s3.Client
	bucket string
}

func once(o *s3.Options) { o.Retryer = aws.NopRetryer{} }

func (c *awsClient) Get(ctx context.Context, name string) (Object, error) {
	got, err := c.s3.GetObject(ctx, &s3.GetObjectInput{Bucket: &c.bucket, Key: &name}, once)
	var answer *smithyhttp.ResponseError
	var api smithy.APIError
	if errors.As(err, &answer) && errors.As(err, &api) && api.ErrorCode() == "NoSuchKey" {
		date, err := http.ParseTime(answer.Response.Header.Get("Date"))
		return Object{Date: date}, err
	}
	if err != nil {
		return Object{}, status(err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	date, _ := middleware.GetServerTime(got.ResultMetadata)
	return Object{ETag: aws.ToString(got.ETag), Body: body, Modified: aws.ToTime(got.LastModified), Date: date}, err
}

func (c *awsClient) Put(ctx context.Context, name, etag string, body []byte) (Object, error) {
	in := &s3.PutObjectInput{
		Bucket: &c.bucket, Key: &name, Body: bytes.NewReader(body), ContentType: aws.String("application/json"),
	}
	if in.IfMatch = &etag; etag == "" {
		in.IfMatch, in.IfNoneMatch = nil, aws.String("*")
	}
	put, err := c.s3.PutObject(ctx, in, once)
	if err != nil {
		return Object{}, status(err)
	}
	date, _ := middleware.GetServerTime(put.ResultMetadata)
	return Object{ETag: aws.ToString(put.ETag), Date: date}, nil
}

func (c *awsClient) List(ctx context.Context, prefix, after string) ([]Object, error) {
	in := &s3.ListObjectsV2Input{Bucket: &c.bucket, Prefix: &prefix}
	if after != "" {
		in.StartAfter = &after
	}
	got, err := c.s3.ListObjectsV2(ctx, in)
	if err != nil {
		return nil, status(err)
	}
	all := make([]Object, len(got.Contents))
	for i, o := range got.Contents {
		all[i] = Object{Name: aws.ToString(o.Key), Size: aws.ToInt64(o.Size)}
	}
	return all, nil
}

// status returns err as a *StatusError if the server has responded.
func status(err error) error {
	var answer *smithyhttp.ResponseError
	if !errors.As(err, &answer) || answer.Response == nil || answer.HTTPStatusCode() < http.StatusMultipleChoices {
		return err
	}
	e := &StatusError{Status: answer.HTTPStatusCode(), Err: err}
	var api smithy.APIError
	if errors.As(err, &api) {
		e.Code = api.ErrorCode()
	}
	return e
}
