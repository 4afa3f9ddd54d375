package storeurl

import (
	"fmt"
	"net"
	"net/url"
	"strings"
)

// hosts reads a list of hosts, and gives port to those without one.
func (u *URL) hosts(rest *url.URL, port string) error {
	var all []string
	for h := range strings.SplitSeq(rest.Host, ",") {
		host, own, err := net.SplitHostPort(h)
		if err != nil {
			host, own = strings.Trim(h, "[]"), port
		}
		if host == "" || own == "" {
			return fmt.Errorf("the %s URL has no host, or a comma too many; write %s", u.Scheme, u.scheme.form)
		}
		all = append(all, net.JoinHostPort(host, own))
	}
	u.Host = strings.Join(all, ",")
	return nil
}

// oneList makes a list of hosts of a list of URLs, as NATS has it: nats://a:4222,nats://b:4222.
func oneList(raw string, from Source) (string, error) {
	scheme, _, _ := strings.Cut(raw, "://")
	first, others, ok := strings.Cut(raw, ","+scheme+"://")
	if s := find(scheme); !ok || s == nil || !strings.Contains(s.form, "host:port,host:port") {
		return raw, nil
	}
	if strings.Contains(others, "@") {
		return "", fmt.Errorf("the URL in %s names a user or a password behind the first host; write them once, "+
			"before it", from.Name)
	}
	return first + "," + strings.ReplaceAll(others, ","+scheme+"://", ","), nil
}

// host reads the one host of a URL.
func (u *URL) host(rest *url.URL, port string) error {
	host, own := rest.Hostname(), rest.Port()
	if host == "" || strings.Contains(rest.Host, ",") || rest.Opaque != "" {
		return fmt.Errorf("the %s URL has no host, or more than one; write %s", u.Scheme, u.scheme.form)
	}
	if own == "" {
		own = port
	}
	u.Host = net.JoinHostPort(host, own)
	return nil
}

// database reads the name of a database, which follows the hosts. Complaints do not repeat what
// they are about: part of a password with a slash in it looks like a database.
func (u *URL) database(rest *url.URL) error {
	u.Path = strings.TrimPrefix(rest.Path, "/")
	if u.Path == "" || strings.Contains(u.Path, "/") {
		return fmt.Errorf("what follows the host of the %s URL is not the name of a database; write %s, "+
			"and percent-encode special characters of a password", u.Scheme, u.scheme.form)
	}
	u.text = u.Scheme + " " + u.Host + "/" + u.Path
	return nil
}

// tree reads hosts and the path below which a store keeps its keys.
func (u *URL) tree(rest *url.URL, port string) error {
	if err := u.hosts(rest, port); err != nil {
		return err
	}
	u.Path = strings.Trim(rest.Path, "/")
	u.text = u.Scheme + " " + u.Host
	if u.Path != "" {
		u.text += "/" + u.Path
	}
	return nil
}

// nothing refuses whatever follows the colon.
func (u *URL) nothing(rest *url.URL, instead string) error {
	if rest.Opaque != "" || rest.Host != "" || rest.Path != "" {
		return fmt.Errorf("%s: takes nothing behind the colon%s", u.Scheme, instead)
	}
	return nil
}

// hostname is the host of a URL with one host, without its port.
func (u *URL) hostname() string {
	host, _, _ := net.SplitHostPort(u.Host)
	return host
}
