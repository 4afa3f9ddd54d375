package torture

import (
	"net/url"
	"strings"

	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/verify/traffic"
)

// through returns the proxies that a worker goes through to what is at a URL: the URL
// that it is given, and the address of the proxy that asks where to, or nothing.
//
// Where servers tell clients of others, and where their names are in certificates, one
// proxy stands for all of them. Elsewhere each server has one of its own.
func through(raw string) (to, via string, proxies []*faultproxy.Proxy, err error) {
	u, err := traffic.ParseURL(raw)
	if err != nil {
		return "", "", nil, err
	}
	there, err := url.Parse(raw)
	if err != nil {
		return "", "", nil, err
	}
	if u.Scheme == "s3" {
		return throughEndpoint(there)
	}
	targets := strings.Split(u.Host, ",")
	switch u.Scheme {
	case "rediss", "redis+sentinel", "redis+cluster", "redlock", "etcds":
		targets = []string{""}
	}
	var addrs []string
	for _, target := range targets {
		p, err := faultproxy.Listen(target, faultproxy.Framer{})
		if err != nil {
			each(proxies, (*faultproxy.Proxy).Close)
			return "", "", nil, err
		}
		proxies, addrs = append(proxies, p), append(addrs, p.Addr())
	}
	if targets[0] == "" {
		return raw, addrs[0], proxies, nil
	}
	there.Host = strings.Join(addrs, ",")
	return there.String(), "", proxies, nil
}

// throughEndpoint is through for a URL that names the server in a parameter.
func throughEndpoint(there *url.URL) (to, via string, proxies []*faultproxy.Proxy, err error) {
	query := there.Query()
	endpoint, err := url.Parse(query.Get("endpoint"))
	if err != nil {
		return "", "", nil, err
	}
	p, err := faultproxy.Listen(endpoint.Host, faultproxy.Framer{})
	if err != nil {
		return "", "", nil, err
	}
	endpoint.Host = p.Addr()
	query.Set("endpoint", endpoint.String())
	there.RawQuery = query.Encode()
	return there.String(), "", []*faultproxy.Proxy{p}, nil
}

func each(proxies []*faultproxy.Proxy, do func(*faultproxy.Proxy)) {
	for _, p := range proxies {
		do(p)
	}
}
