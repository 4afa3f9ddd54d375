package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// httpClient is a client of the service. It sends from the goroutine that calls, over
// connections that it keeps, as the clients of most languages do: those of net/http have two
// goroutines more for each connection.
type httpClient struct {
	addr string

	mu   sync.Mutex
	idle []*httpConn
}

type httpConn struct {
	net.Conn
	in *bufio.Reader
}

func (c *httpClient) dial(ctx context.Context) (*httpConn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return nil, err
	}
	return &httpConn{conn, bufio.NewReaderSize(conn, 1024)}, nil
}

func (c *httpClient) take(ctx context.Context) (*httpConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.idle); n > 0 {
		conn := c.idle[n-1]
		c.idle = c.idle[:n-1]
		return conn, nil
	}
	return c.dial(ctx)
}

func (c *httpClient) give(conn *httpConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, conn)
}

func (c *httpClient) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.idle {
		conn.Close()
	}
}

// post sends a request and decodes the answer into v, if it is not nil.
func (c *httpClient) post(ctx context.Context, path, body string, v any) error {
	conn, err := c.take(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = errors.Join(conn.send(path, body), conn.receive(v))
	if !stop() || err != nil {
		conn.Close()
		return errors.Join(ctx.Err(), err)
	}
	c.give(conn)
	return nil
}

func (c *httpConn) send(path, body string) error {
	_, err := io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body)
	return err
}

func (c *httpConn) receive(v any) error {
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return err
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s", res.Status, text)
	case v == nil:
		return nil
	}
	return json.Unmarshal(text, v)
}

// wait opens a connection that waits for the lock of key.
func (c *httpClient) wait(ctx context.Context, key string) (*httpConn, error) {
	w, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.send("/v1/acquire", fmt.Sprintf(`{"key":%q,"wait":"5m"}`, key)); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// untilWaiting waits until n claims wait at the instance.
func (c *httpClient) untilWaiting(ctx context.Context, n int) error {
	want, text := fmt.Sprintf("\nfencelock_http_waiting %d\n", n), ""
	for begun := time.Now(); time.Since(begun) < patience; {
		res, err := http.Get("http://" + c.addr + "/metrics")
		if err != nil {
			return err
		}
		all, err := io.ReadAll(res.Body)
		res.Body.Close()
		if text = string(all); err != nil || strings.Contains(text, want) {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("%d clients do not wait after %v:\n%s", n, patience, text)
}
