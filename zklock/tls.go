package zklock

import (
	"crypto/tls"
	"errors"
	"net"
	"time"
)

// encrypt begins TLS on tcp, and waits for the server as long as for a session.
func (s *session) encrypt(tcp net.Conn, address string) (net.Conn, error) {
	config := s.b.tls
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	conn := tls.Client(tcp, config)
	_ = newTransport(conn, s).SetReadDeadline(time.Now())
	if err := conn.Handshake(); err != nil {
		tcp.Close()
		s.distrust(err)
		return nil, err
	}
	return conn, conn.SetReadDeadline(time.Time{})
}

// distrust ends a session that has not begun when the certificate of no server can be
// verified. A session that has begun may have claims, and goes on trying.
func (s *session) distrust(err error) {
	var bad *tls.CertificateVerificationError
	if !errors.As(err, &bad) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.distrusted++
	if s.id == 0 && s.distrusted >= len(s.b.servers) {
		s.unwanted = bad
		s.end()
	}
}
