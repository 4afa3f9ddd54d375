package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"sync/atomic"

	"github.com/fencelock/fencelock/httplock"
	"github.com/fencelock/fencelock/internal/clean"
	"github.com/fencelock/fencelock/internal/terminal"
)

// secrets are what serve knows its clients by, and itself. SIGHUP reads them again.
type secrets struct {
	f       *serveFlags
	tokens  *httplock.Tokens // nil: everybody may do everything
	cert    atomic.Pointer[tls.Certificate]
	clients *x509.CertPool
}

func (f *serveFlags) readSecrets() (*secrets, error) {
	s := &secrets{f: f}
	if f.tokens != "" {
		s.tokens = &httplock.Tokens{}
	}
	if err := s.read(); err != nil {
		return nil, err
	}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fail(exitConfig, "cannot read --client-ca: %v", err)
		}
		s.clients = x509.NewCertPool()
		if !s.clients.AppendCertsFromPEM(pem) {
			return nil, fail(exitConfig, "--client-ca %s has no certificate in PEM form", quote(f.ca))
		}
	}
	return s, nil
}

// read reads the tokens and the certificate. What cannot be read stays as it was.
func (s *secrets) read() error {
	if s.tokens != nil {
		text, err := os.ReadFile(s.f.tokens)
		if err == nil {
			err = s.tokens.Load(strings.NewReader(clean.Text(text)))
		}
		if err != nil {
			return fail(exitConfig, "--tokens %s: %s", quote(s.f.tokens),
				strings.TrimPrefix(terminal.Pathless(err).Error(), "httplock: "))
		}
	}
	if s.f.cert != "" {
		cert, err := tls.LoadX509KeyPair(s.f.cert, s.f.key)
		if err != nil {
			return fail(exitConfig, "--tls-cert %s: %v", quote(s.f.cert), err)
		}
		s.cert.Store(&cert)
	}
	return nil
}

func (s *secrets) reload() {
	if err := s.read(); err != nil {
		say("%s; what was read before stays in force", err)
		return
	}
	say("the tokens and the certificate were read again")
}

// config is nil if serve has no TLS.
func (s *secrets) config() *tls.Config {
	if s.cert.Load() == nil {
		return nil
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.cert.Load(), nil
		},
	}
	if s.clients != nil {
		c.ClientCAs, c.ClientAuth = s.clients, tls.VerifyClientCertIfGiven
	}
	return c
}
