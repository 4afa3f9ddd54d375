package zklock

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver/health"
)

var _ health.Examiner = (*Backend)(nil)

const (
	// fourLettersTimeout is how long a server may take to answer a command of four letters.
	fourLettersTimeout = 2 * time.Second
	// election is how long an ensemble takes to elect, once it has noticed that it must.
	election = time.Second
)

// Examine reads what the settings of the ensemble mean for locks of ttl. It begins the
// session, as any first call does. It asks each server by commands of four letters, srvr and
// conf, on a connection for each; what they do not say is a note.
func (b *Backend) Examine(ctx context.Context, ttl time.Duration) (health.Result, error) {
	granted, err := do(ctx, b, "reading the settings for", b.prefix,
		func(_ context.Context, s *session) (time.Duration, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.timeout, nil
		})
	if err != nil {
		return health.Result{}, err
	}
	x := examination{b: b, ttl: ttl}
	x.ServerTime = true
	x.session(granted)
	x.servers(ctx)
	return x.Result, ctx.Err()
}

// examination examines an ensemble.
type examination struct {
	health.Result
	b   *Backend
	ttl time.Duration
}

func (x *examination) add(severity health.Severity, code, server, setting, value, why, remedy string) {
	x.Add(health.Finding{
		Severity: severity, Code: code, Server: server, Setting: setting, Value: value, Why: why, Remedy: remedy,
	})
}

// session looks at the session that the server has granted.
func (x *examination) session(granted time.Duration) {
	asked, lease := x.b.timeout, granted*2/3
	switch {
	case granted > asked:
		x.add(health.Warning, "zookeeper-min-session", "", "minSessionTimeout", granted.String(),
			"A session of "+asked.String()+" was asked for, and the server grants no shorter one. A process that "+
				"crashes keeps its locks for all of it.",
			"minSessionTimeout="+strconv.FormatInt(asked.Milliseconds(), 10)+" in zoo.cfg, or a smaller tickTime")
	case granted < asked && lease < x.ttl:
		severity := health.Note
		if lease < x.ttl/2 {
			severity = health.Warning
		}
		x.add(severity, "zookeeper-max-session", "", "maxSessionTimeout", granted.String(),
			"Leases last two thirds of a session, so they last "+lease.Round(time.Millisecond).String()+" where "+
				x.ttl.String()+" are asked for.",
			"maxSessionTimeout="+strconv.FormatInt((x.ttl*3/2).Milliseconds(), 10)+" in zoo.cfg")
	}
}

// serverAnswer is what one server says of itself.
type serverAnswer struct {
	srvr, conf, cons string
	host             string // of this client, as the server sees it
}

// servers asks all servers at once.
func (x *examination) servers(ctx context.Context) {
	answers, errs := make([]serverAnswer, len(x.b.servers)), make([]error, len(x.b.servers))
	var all sync.WaitGroup
	for i, server := range x.b.servers {
		all.Go(func() {
			answers[i], errs[i] = x.ask(ctx, server)
		})
	}
	all.Wait()
	for i, server := range x.b.servers {
		host, _, err := net.SplitHostPort(server)
		if err != nil {
			host = server
		}
		x.Hosts = append(x.Hosts, host)
		if len(x.b.servers) == 1 {
			server = ""
		}
		if errs[i] != nil {
			x.add(health.Warning, "zookeeper-server-down", server, "srvr", health.OneLine(errs[i].Error()),
				"The ensemble survives the loss of fewer servers now, or of none.",
				"start the server, or take it out of the URL")
			continue
		}
		x.server(server, answers[i])
	}
}

// ask asks one server. That cons is off is no error.
func (x *examination) ask(ctx context.Context, server string) (a serverAnswer, err error) {
	if a.srvr, _, err = x.b.fourLetters(ctx, server, server, "srvr"); err != nil {
		return a, err
	}
	if a.conf, _, err = x.b.fourLetters(ctx, server, server, "conf"); err != nil {
		return a, err
	}
	if cons, host, err := x.b.fourLetters(ctx, server, server, "cons"); err == nil {
		a.cons, a.host = "\n"+cons, host
	}
	return a, nil
}

func (x *examination) server(name string, a serverAnswer) {
	if field(a.srvr, "Mode: ") == "standalone" {
		x.add(health.Note, "zookeeper-single", name, "Mode", "standalone",
			"No lock is granted or renewed while this server is down.",
			"start an ensemble of three servers, and name all of them: zk://host1:2181,host2:2181,host3:2181")
	}
	tick, err := strconv.Atoi(field(a.conf, "tickTime="))
	if err != nil {
		x.add(health.Note, "zookeeper-four-letters", name, "conf", health.OneLine(a.conf),
			"The server does not tell its settings: tickTime and syncLimit are not known.",
			"4lw.commands.whitelist=srvr,conf in zoo.cfg")
		return
	}
	x.connections(name, a)
	period := time.Duration(tick) * time.Millisecond
	if period >= x.ttl/2 {
		x.add(health.Warning, "zookeeper-tick", name, "tickTime", strconv.Itoa(tick),
			"Sessions end at multiples of a tick, so a crashed holder blocks others for up to "+
				period.String()+" more. That is half of a lease of "+x.ttl.String()+" or more.",
			"tickTime=2000 in zoo.cfg")
	}
	limit, err := strconv.Atoi(field(a.conf, "syncLimit="))
	if err != nil || limit == 0 {
		return // it stands alone
	}
	failover := time.Duration(limit)*period + election
	x.Failover = max(x.Failover, failover)
	if failover > x.ttl*2/3 {
		x.add(health.Warning, "zookeeper-sync-limit", name,
			"tickTime, syncLimit", fmt.Sprintf("%d, %d", tick, limit),
			"Two thirds of a lease of "+x.ttl.String()+" are left when the leader dies before a renewal. The "+
				"others may notice only after "+(time.Duration(limit)*period).String()+", so holders may lose "+
				"their locks.",
			"a TTL of "+(failover*3/2+time.Second).Truncate(time.Second).String()+" or more; or a smaller "+
				"syncLimit or tickTime in zoo.cfg")
	}
}

// connections looks at how many connections the server allows one host. cons is a command that
// may be off; the others do not say whose connections there are.
func (x *examination) connections(name string, a serverAnswer) {
	limit, err := strconv.Atoi(field(a.conf, "maxClientCnxns="))
	if err != nil || limit <= 0 {
		return
	}
	used := strings.Count(a.cons, "\n /"+a.host+":")
	severity, value, more := health.Note, strconv.Itoa(limit), ""
	if used > 0 {
		value += fmt.Sprintf(", and this host has %d connections", used)
	}
	if used >= limit*4/5 {
		severity, more = health.Warning, fmt.Sprint("=", 2*used)
	}
	x.add(severity, "zookeeper-connections", name, "maxClientCnxns", value,
		"Each process that holds a lock or waits for one has a connection. At the limit further processes of the "+
			"host are turned away. Where connections of several holders break at once, some may find no place when "+
			"they come back.",
		"maxClientCnxns"+more+" in zoo.cfg: twice the processes of one host, and at least one more than there "+
			"are; or share connections by fencelock serve")
}

// field returns what follows a prefix on a line of its own, or "".
func field(text, prefix string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// fourLetters sends the server called name, at an address, one of ZooKeeper's commands of four
// letters. It returns the answer, and from which host it was sent.
func (b *Backend) fourLetters(ctx context.Context, at, name, word string) (answer, host string, err error) {
	ctx, cancel := context.WithTimeout(ctx, fourLettersTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", at)
	if err != nil {
		return "", "", err
	}
	host, _, _ = net.SplitHostPort(conn.LocalAddr().String())
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if b.tls != nil {
		config := b.tls.Clone()
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(name)
		}
		conn = tls.Client(conn, config)
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", "", err
	}
	const most = 1 << 20
	text, err := io.ReadAll(io.LimitReader(conn, most))
	return string(text), host, err
}
