package storeurl

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// redisSockets are the schemes by which go-redis, redis-py and others name a Unix socket of
// Redis: unix:///run/redis.sock?db=1.
var redisSockets = []string{"unix", "redis+unix", "redis+socket", "redis-socket"}

// escapedSocket is a PostgreSQL URL with the folder of a socket in place of the host, as libpq
// has it, which package url does not read: postgres://user@%2Frun%2Fpostgresql:5432/db.
var escapedSocket = regexp.MustCompile(`^(postgres(?:ql)?://(?:[^/?#]*@)?)(%2[Ff][^/?#:@]*)([^?#@]*)(?:\?(.*))?$`)

// socketAsParameter writes a URL with such a host as one with the parameter host.
func socketAsParameter(raw string) string {
	m := escapedSocket.FindStringSubmatch(raw)
	if m == nil {
		return raw
	}
	raw = m[1] + m[3] + "?host=" + m[2]
	if m[4] != "" {
		raw += "&" + m[4]
	}
	return raw
}

// redisSocket makes a URL of scheme redis, with the parameter socket, of one that names a
// socket by its scheme.
func redisSocket(rest *url.URL, from Source) error {
	if !slices.Contains(redisSockets, rest.Scheme) {
		return nil
	}
	if rest.Host != "" || rest.Opaque != "" || !strings.HasPrefix(rest.Path, "/") || strings.Contains(rest.Path, "@") {
		return fmt.Errorf("the URL in %s does not name a socket; write unix:///path/redis.sock?db=0, "+
			"and percent-encode special characters of a password", from.Name)
	}
	query := rest.Query()
	query.Set("socket", rest.Path)
	rest.Scheme, rest.Path, rest.RawPath, rest.RawQuery = "redis", "", "", query.Encode()
	return nil
}

// socket takes the parameter with the path of a Unix socket, if there is one by these names.
func (u *URL) socket(rest *url.URL, names ...string) (has bool, err error) {
	for _, name := range names {
		path, ok := u.settings[name]
		if !ok {
			continue
		}
		delete(u.settings, name)
		if has || !strings.HasPrefix(path, "/") {
			return false, fmt.Errorf("the %s URL wants one absolute path of a socket in %s", u.Scheme, name)
		}
		if h := rest.Host; h != "" && h != "localhost" {
			return false, fmt.Errorf("the %s URL names a host and a socket; leave the host or %s out", u.Scheme, name)
		}
		u.Host, has = path, true
	}
	return has, nil
}

// onSocket reports whether the server is reached by a Unix socket, on this host alone.
func (u *URL) onSocket() bool { return strings.HasPrefix(u.Host, "/") }

// postgresHosts reads the hosts of a PostgreSQL URL, which may be several, or folders of Unix
// sockets. As in libpq they stand before the path, or in the parameters host and port.
func (u *URL) postgresHosts(rest *url.URL) error {
	hosts, ok := u.settings["host"]
	switch {
	case !ok && rest.Host == "" && rest.Opaque == "":
		return fmt.Errorf("the %s URL has no host; write %s, or for a Unix socket %s:///db?host=/run/postgresql",
			u.Scheme, u.scheme.form, u.Scheme)
	case !ok:
		return u.hosts(rest, "5432")
	case rest.Hostname() != "" || rest.Opaque != "":
		return fmt.Errorf("the %s URL names its hosts twice: before the path, and with host=", u.Scheme)
	}
	ports := u.settings["port"]
	if ports == "" {
		ports = rest.Port()
	}
	delete(u.settings, "host")
	delete(u.settings, "port")
	var all []string
	each, port := strings.Split(hosts, ","), strings.Split(ports, ",")
	for i, host := range each {
		own := port[min(i, len(port)-1)]
		if own == "" {
			own = "5432"
		}
		if host == "" || !portsExist("h:"+own) || len(port) > 1 && len(port) != len(each) {
			return fmt.Errorf("host and port of the %s URL do not name servers; write host=a,b&port=5432,5433",
				u.Scheme)
		}
		all = append(all, net.JoinHostPort(host, own))
	}
	u.Host = strings.Join(all, ",")
	return nil
}

// hostsAndPorts are the hosts of the URL, and the port of each.
func (u *URL) hostsAndPorts() (hosts, ports []string) {
	for h := range strings.SplitSeq(u.Host, ",") {
		host, port, _ := net.SplitHostPort(h)
		hosts, ports = append(hosts, host), append(ports, port)
	}
	return hosts, ports
}
