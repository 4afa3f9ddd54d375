package storeurl

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencelock/fencelock/s3lock"
)

// checkS3 reads s3://bucket/prefix. The rest is as other programs of AWS have it: credentials and the region are in
// the environment or in the files in ~/.aws.
func checkS3(u *URL, rest *url.URL) error {
	u.Host, u.Path = rest.Host, strings.Trim(rest.Path, "/")
	at := u.settings["endpoint"]
	endpoint, err := url.Parse(at)
	switch {
	case rest.User != nil:
		return fmt.Errorf("the s3 URL has a user; leave it out, and put the key into AWS_ACCESS_KEY_ID and " +
			"AWS_SECRET_ACCESS_KEY, or name a profile in AWS_PROFILE")
	case u.Host == "" || strings.ContainsAny(u.Host, ":,"):
		return fmt.Errorf("the s3 URL does not begin with one bucket; write %s", u.scheme.form)
	case err != nil || at != "" && (endpoint.Host == "" || !strings.HasPrefix(endpoint.Scheme, "http")):
		return fmt.Errorf("endpoint of the s3 URL is not an address; write endpoint=https://host:port")
	}
	if poll := u.settings["poll"]; poll != "" {
		if d, err := time.ParseDuration(poll); err != nil || d <= 0 {
			return fmt.Errorf("poll of the s3 URL is not a time; write poll=500ms")
		}
	}
	u.text = strings.TrimSuffix("s3 "+u.Host+"/"+u.Path, "/")
	if err := u.foreign(foreignS3); err != nil {
		return err
	}
	return u.onlySettings("endpoint", "region", "poll")
}

func openS3(ctx context.Context, u *URL, c *Config) (*Store, error) {
	transport := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = 16
		if c.Dial != nil {
			t.DialContext = c.Dial
		}
	})
	from := []func(*config.LoadOptions) error{config.WithHTTPClient(transport)}
	if region := u.settings["region"]; region != "" {
		from = append(from, config.WithRegion(region))
	}
	conf, err := config.LoadDefaultConfig(ctx, from...)
	if err != nil {
		return nil, badConfig("the settings of AWS for %s cannot be read: %v", u, err)
	}
	if conf.Region == "" {
		conf.Region = "us-east-1"
	}
	client := s3.NewFromConfig(conf, func(o *s3.Options) {
		if endpoint := u.settings["endpoint"]; endpoint != "" {
			o.BaseEndpoint, o.UsePathStyle = &endpoint, true
			// Not every server knows the checksums that Amazon's takes.
			o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
			o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		}
	})
	o := &s3lock.Options{}
	if u.Path != "" {
		o.Prefix = u.Path + "/"
	}
	o.Poll, _ = time.ParseDuration(u.settings["poll"]) // checkS3 has read it
	b := s3lock.New(s3lock.AWS(client, u.Host), o)
	ping := func(ctx context.Context) error {
		if _, err := conf.Credentials.Retrieve(ctx); err != nil {
			return badConfig("credentials of AWS for %s are missing: set AWS_ACCESS_KEY_ID and "+
				"AWS_SECRET_ACCESS_KEY, or AWS_PROFILE: %v", u, err)
		}
		return readLine(b)(ctx)
	}
	return &Store{Backend: b, ping: ping, close: transport.GetTransport().CloseIdleConnections}, nil
}
