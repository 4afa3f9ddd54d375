package storeurl

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
)

// TLSFiles are files in PEM form.
type TLSFiles struct {
	CA   string // certificates that the server's must be signed by; empty: those of the system
	Cert string // this client's certificate, with Key; empty: none
	Key  string
}

func (f TLSFiles) empty() bool { return f == TLSFiles{} }

// tlsNames are the parameters of a URL for TLSFiles.
var tlsNames = []string{"ca", "cert", "key"}

// readSettings takes ca, cert and key out of the parameters behind a ?. The others are for
// the check of the scheme.
func (u *URL) readSettings(query url.Values, from Source) error {
	own := TLSFiles{CA: query.Get("ca"), Cert: query.Get("cert"), Key: query.Get("key")}
	u.settings = map[string]string{}
	for name, values := range query {
		switch {
		case (strings.Trim(name, letters) != "" || name == "") && name != "ssl-mode":
			// It may be part of a password with a ? in it.
			return fmt.Errorf("the URL in %s has a parameter that cannot be read behind the ?; percent-encode special "+
				"characters of a password, or put it into %s", from.Name, EnvPassword)
		case name == "format":
			return fmt.Errorf("the URL in %s has the parameter format outside of the old store of a bridge; write "+
				"bridge:OLD?format=setnx,NEW to hold the locks of another library too, or leave it out", from.Name)
		case len(values) > 1:
			return fmt.Errorf("the URL in %s has the parameter %s more than once", from.Name, name)
		case strings.Contains(name, "password") && from.Visible:
			return errVisible
		case !slices.Contains(tlsNames, name):
			u.settings[name] = values[0]
		}
	}
	switch {
	case !own.empty() && !u.scheme.tls:
		return fmt.Errorf("a connection to %s: is not encrypted, so ca, cert and key have no meaning; "+
			"known with TLS are %s", u.Scheme, strings.Join(schemesWithTLS(), ", "))
	case own.empty() && u.scheme.tls:
		own = from.TLS
	}
	if (own.Cert == "") != (own.Key == "") {
		return fmt.Errorf("the certificate and the key for the URL in %s belong together: give both, or neither",
			from.Name)
	}
	u.tls = own
	return nil
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

// onlySettings refuses parameters that are not among known.
func (u *URL) onlySettings(known ...string) error {
	if u.scheme.tls {
		known = append(slices.Clone(known), tlsNames...)
	}
	for name := range u.settings {
		if slices.Contains(known, name) {
			continue
		}
		near := nearest(name, known)
		switch {
		case near != "":
			return fmt.Errorf("the %s URL has an unknown parameter %s; did you mean %s?", u.Scheme, name, near)
		case len(known) == 0:
			return fmt.Errorf("the %s URL has an unknown parameter %s; it takes none", u.Scheme, name)
		}
		slices.Sort(known)
		return fmt.Errorf("the %s URL has an unknown parameter %s; known are %s",
			u.Scheme, name, strings.Join(known, ", "))
	}
	return nil
}

// tlsConfig reads the files of the URL.
func (u *URL) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if u.tls.CA != "" {
		pem, err := os.ReadFile(u.tls.CA)
		if err != nil {
			return nil, badConfig("the CA file for %s cannot be read: %v; check ca= in the URL and %s", u, err, EnvCA)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, badConfig("%q holds no certificate in PEM form; check ca= in the URL and %s", u.tls.CA, EnvCA)
		}
	}
	if u.tls.Cert != "" {
		pair, err := tls.LoadX509KeyPair(u.tls.Cert, u.tls.Key)
		if err != nil {
			return nil, badConfig("the client certificate for %s cannot be used: %v; check cert= and key= in the URL, "+
				"%s and %s", u, err, EnvCert, EnvKey)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// nearest returns the name that a typo was meant to be, or "".
func nearest(typo string, names []string) string {
	best, least := "", 3
	for _, name := range names {
		if d := distance(strings.ToLower(typo), strings.ToLower(name)); d < least && d < len(name) {
			best, least = name, d
		}
	}
	return best
}

// distance is how many letters must be inserted, deleted or replaced (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := diagonal
			if a[i] != b[j] {
				next = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
