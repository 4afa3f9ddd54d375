package traffic

import (
	"context"
	"fmt"
	"net"
)

// via is the key of a context whose connections go through a proxy. Its value is the
// proxy's address.
type via struct{}

// Via makes every connection of what is opened with the context go through the proxy at
// addr, which is told the address that was meant. It is for stores whose servers tell
// clients where others are, and for those whose name is in a certificate.
func Via(ctx context.Context, addr string) context.Context {
	if addr == "" {
		return ctx
	}
	return context.WithValue(ctx, via{}, addr)
}

// dialer connects as ctx says; nil if that is nothing special.
func dialer(ctx context.Context) func(ctx context.Context, network, addr string) (net.Conn, error) {
	proxy, _ := ctx.Value(via{}).(string)
	if proxy == "" {
		return nil
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := net.Dialer{Timeout: quick}
		c, err := d.DialContext(ctx, network, proxy)
		if err != nil {
			return nil, err
		}
		if _, err := fmt.Fprintln(c, addr); err != nil {
			c.Close()
			return nil, err
		}
		return c, nil
	}
}
