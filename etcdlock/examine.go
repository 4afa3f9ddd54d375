package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver/health"
	"github.com/fencelock/fencelock/etcdlock/internal/reply"
)

var _ health.Examiner = (*Backend)(nil)

const (
	// memberTimeout is how long a member may take to say how it is.
	memberTimeout = 2 * time.Second
	// defaultQuota is the quota of a server that does not tell: etcd before 3.6.
	defaultQuota = 2 << 30
	// muchHistory is a number of revisions by which a history should have been compacted.
	muchHistory = 5000
)

// Examine reads what the settings of the cluster mean for locks of ttl. It costs about ten
// requests, and one to each endpoint of the client. One of them creates a lease, which the
// next one revokes.
func (b *Backend) Examine(ctx context.Context, ttl time.Duration) (health.Result, error) {
	x := examination{b: b, ttl: ttl}
	err := b.call(ctx, reply.Read, "reading the settings for", b.prefix, x.examine)
	return x.Result, err
}

// examination examines a cluster.
type examination struct {
	health.Result
	b        *Backend
	ttl      time.Duration
	revision int64 // of the store
	full     bool  // an alarm says so
}

func (x *examination) add(severity health.Severity, code, server, setting, value, why, remedy string) {
	x.Add(health.Finding{
		Severity: severity, Code: code, Server: server, Setting: setting, Value: value, Why: why, Remedy: remedy,
	})
}

func (x *examination) examine(ctx context.Context) error {
	for _, part := range []func(context.Context) error{x.history, x.members, x.alarms} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	x.endpoints(ctx)
	// The remedy for a store that is full, or nearly, compacts as well, and can do so once.
	if x.full || slices.ContainsFunc(x.Findings, func(f health.Finding) bool { return f.Code == "etcd-quota" }) {
		x.Findings = slices.DeleteFunc(x.Findings, func(f health.Finding) bool { return f.Code == "etcd-compaction" })
	}
	return ctx.Err()
}

// history looks whether anybody compacts, and how long a request takes.
func (x *examination) history(ctx context.Context) error {
	var took []time.Duration
	for range 3 {
		sent := time.Now()
		answer, err := x.b.etcd.Get(ctx, x.b.prefix, clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		took, x.revision = append(took, time.Since(sent)), answer.Header.Revision
	}
	slices.Sort(took)
	x.latency(took[1])
	if x.revision < muchHistory {
		return nil
	}
	_, err := x.b.etcd.Get(ctx, x.b.prefix, clientv3.WithCountOnly(), clientv3.WithRev(1))
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil
	}
	if err == nil {
		value := fmt.Sprintf("never, in %d revisions", x.revision)
		x.add(health.Warning, "etcd-compaction", "", "compaction", value,
			"Each step of a lock stays in the history until that is compacted. The store fills up, and takes no "+
				"locks then.",
			fmt.Sprintf("etcdctl compact %d, then start the servers with --auto-compaction-retention=1h", x.revision))
	}
	return err
}

// slowRequest is half of etcd's default election timeout.
const slowRequest = 500 * time.Millisecond

func (x *examination) latency(took time.Duration) {
	if took < slowRequest {
		return
	}
	x.add(health.Warning, "etcd-latency", "", "latency of a read", took.Round(time.Millisecond).String(),
		"The members agree on each request. If their disks or the network between them take as long, they lose "+
			"their leader, and no lock is granted or renewed until another is elected.",
		"run doctor on the host of a member: if a read takes as long there, start the members with a --data-dir on a "+
			"disk of their own; if not, repair the network in between")
}

// members looks how many there are, and how long an election takes.
func (x *examination) members(ctx context.Context) error {
	answer, err := x.b.etcd.MemberList(ctx)
	if err != nil {
		return err
	}
	if len(answer.Members) == 1 {
		x.add(health.Note, "etcd-single", "", "members", "1",
			"No lock is granted or renewed while this one is down.",
			"start a cluster of three members, and name all of them: etcd://host1:2379,host2:2379,host3:2379")
		return nil
	}
	// The shortest lease that a server grants is one and a half of its election timeouts.
	lease, err := x.b.etcd.Grant(ctx, 1)
	if err != nil {
		return nil // there is no space, which is an alarm
	}
	_, _ = x.b.etcd.Revoke(ctx, lease.ID)
	election := time.Duration(lease.TTL) * time.Second * 2 / 3
	x.Failover = 2 * election
	if x.Failover > x.ttl*2/3 {
		x.add(health.Warning, "etcd-election-timeout", "", "--election-timeout", "up to "+
			election.Round(100*time.Millisecond).String(),
			"Two thirds of a lease of "+x.ttl.String()+" are left when the leader dies before a renewal. An "+
				"election takes up to two such timeouts, so holders may lose their locks.",
			"a TTL of "+(x.Failover*3/2+time.Second).Truncate(time.Second).String()+" or more, or a shorter "+
				"--election-timeout on every member")
	}
	return nil
}

func (x *examination) alarms(ctx context.Context) error {
	answer, err := x.b.etcd.AlarmList(ctx)
	if err != nil {
		return err
	}
	seen := map[pb.AlarmType]bool{}
	for _, alarm := range answer.Alarms {
		if seen[alarm.Alarm] {
			continue
		}
		seen[alarm.Alarm] = true
		x.full = x.full || alarm.Alarm == pb.AlarmType_NOSPACE
		why, remedy := "No lock can be taken: the store is full.",
			fmt.Sprintf("etcdctl compact %d, then etcdctl defrag --cluster, then etcdctl alarm disarm, then start the "+
				"servers with --auto-compaction-retention=1h", x.revision)
		if alarm.Alarm != pb.AlarmType_NOSPACE {
			why, remedy = "The members disagree on what is stored, so they may disagree on who holds a lock.",
				x.replace(ctx, alarm.MemberID)
		}
		x.add(health.Error, "etcd-alarm", "", "alarm", alarm.Alarm.String(), why, remedy)
	}
	return nil
}

// replace says how to replace a member.
func (x *examination) replace(ctx context.Context, id uint64) string {
	name, peers := "NAME", "URL"
	if answer, err := x.b.etcd.MemberList(ctx); err == nil {
		for _, m := range answer.Members {
			if m.ID == id {
				name, peers = m.Name, strings.Join(m.PeerURLs, ",")
			}
		}
	}
	return fmt.Sprintf("etcdctl member remove %x, then etcdctl alarm disarm, then etcdctl member add %s "+
		"--peer-urls=%s, then start %[2]s with an empty --data-dir and --initial-cluster-state=existing",
		id, name, peers)
}

// endpoints asks each member that the client knows, all at once.
func (x *examination) endpoints(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	endpoints := x.b.etcd.Endpoints()
	answers, errs := make([]*clientv3.StatusResponse, len(endpoints)), make([]error, len(endpoints))
	var all sync.WaitGroup
	for i, endpoint := range endpoints {
		all.Go(func() { answers[i], errs[i] = x.b.etcd.Status(ctx, endpoint) })
	}
	all.Wait()
	for i, endpoint := range endpoints {
		if u, err := url.Parse(endpoint); err == nil && u.Hostname() != "" {
			x.Hosts = append(x.Hosts, u.Hostname())
		}
		if errs[i] == nil {
			x.quota(endpoint, answers[i])
		} else {
			x.add(health.Warning, "etcd-member-down", endpoint, "status", health.OneLine(errs[i].Error()),
				"The cluster survives the loss of fewer members now, or of none.",
				"start the member, or take its endpoint out of the URL")
		}
	}
}

func (x *examination) quota(endpoint string, status *clientv3.StatusResponse) {
	quota := status.DbSizeQuota
	if quota <= 0 {
		quota = defaultQuota
	}
	if status.DbSize < quota/10*8 || x.full {
		return // a full store is another finding, with the same remedy
	}
	x.add(health.Warning, "etcd-quota", endpoint, "--quota-backend-bytes",
		fmt.Sprintf("%d MB of %d used", status.DbSize>>20, quota>>20),
		"At the quota the store takes no locks any more.",
		fmt.Sprintf("etcdctl compact %d, then etcdctl defrag --cluster, then start the servers with "+
			"--auto-compaction-retention=1h; or a larger quota", x.revision))
}
