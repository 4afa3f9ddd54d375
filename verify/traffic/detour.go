package traffic

import (
	"context"
	"fmt"
	"net"
)

// detour is in the context of an Open whose connections go through a proxy: the address
// of one that asks where to.
type detour struct{}

// Via makes every connection of what is opened with the context go through the proxy at
// addr, which is told the address that was meant. It is for stores whose servers tell
// clients where others are, and for those whose name is in a certificate.
func Via(ctx context.Context, addr string) context.Context {
	if addr == "" {
		return ctx
	}
	return context.WithValue(ctx, detour{}, addr)
}

// dialer connects as ctx says; nil if that is nothing special.
func dialer(ctx context.Context) func(ctx context.Context, network, addr string) (net.Conn, error) {
	via, _ := ctx.Value(detour{}).(string)
	if via == "" {
		return nil
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := net.Dialer{Timeout: quick}
		c, err := d.DialContext(ctx, network, via)
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
