package httplock

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// checkHost refuses a Host that this Server is not called by. A page whose name leads to this
// Server by a trick of its DNS sends that name. An address cannot be such a name.
func (c *call) checkHost() error {
	host := c.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	_, err := netip.ParseAddr(host)
	if err == nil || host == "localhost" || c.s.hosts[host] || c.s.hosts["*"] {
		return nil
	}
	return &problem{slug: slugMisdirected,
		detail: "This server is not known by the name in the Host header; start it with --host for each of its names."}
}

// shareOrigin lets scripts of the named origins read the answer. It reports whether the
// request is of one.
func (c *call) shareOrigin() bool {
	origin := c.Header.Get("Origin")
	if origin == "" || !slices.Contains(c.s.o.Origins, origin) {
		return false
	}
	h := c.w.Header()
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "Retry-After")
	if c.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "GET, POST")
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Last-Event-ID")
		h.Set("Access-Control-Max-Age", "600")
	}
	return true
}
