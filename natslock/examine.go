package natslock

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fencelock/fencelock/driver/health"
)

var _ health.Examiner = (*Backend)(nil)

// election is how long the servers of a stream take at most to agree on a leader after the old one has died.
const election = 10 * time.Second

// fewWrites is how many writes a replica may be behind that only takes its time.
const fewWrites = 100

// Ping returns nil if the leader of the bucket responds. It makes the bucket if it is not there.
func (b *Backend) Ping(ctx context.Context) error {
	_, _, err := b.bucket.list(ctx, "none")
	return err
}

// Examine reads what the settings of the bucket mean for locks of ttl, by one request.
func (b *Backend) Examine(ctx context.Context, ttl time.Duration) (health.Result, error) {
	x := examination{health.Result{ServerTime: true}}
	var stream jetstream.StreamInfo
	err := b.bucket.ask(ctx, "STREAM.INFO", struct{}{}, &stream)
	if is(err, jetstream.JSErrCodeStreamNotFound) {
		if err = b.Ping(ctx); err == nil {
			err = b.bucket.ask(ctx, "STREAM.INFO", struct{}{}, &stream)
		}
	}
	if err != nil {
		return x.Result, err
	}
	if u, err := url.Parse(b.bucket.js.Conn().ConnectedUrl()); err == nil && u.Hostname() != "" {
		x.Hosts = append(x.Hosts, u.Hostname())
	}
	x.stream(&stream.Config)
	if stream.Config.Replicas >= 3 && stream.Cluster != nil {
		x.Failover = election
		x.cluster(stream.Cluster, ttl)
	}
	return x.Result, nil
}

// examination gathers findings.
type examination struct{ health.Result }

func (x *examination) add(severity health.Severity, code, setting, value, why, remedy string) {
	x.Add(health.Finding{Severity: severity, Code: code, Setting: setting, Value: value, Why: why, Remedy: remedy})
}

// stream judges the settings of the bucket.
func (x *examination) stream(c *jetstream.StreamConfig) {
	x.Volatile = c.Storage == jetstream.MemoryStorage || c.Replicas < 3
	if c.Storage == jetstream.MemoryStorage {
		x.add(health.Warning, "nats-memory", "storage", "memory", "A restart of the servers forgets all locks.",
			"while no lock is held, nats stream rm "+c.Name+", and let fencelock make the bucket again")
	}
	if c.MaxAge > 0 || c.MaxMsgs > 0 || c.Discard == jetstream.DiscardOld && c.MaxBytes > 0 {
		x.add(health.Error, "nats-limits", "max-age, max-msgs, discard",
			fmt.Sprintf("%v, %d, %v", c.MaxAge, c.MaxMsgs, c.Discard),
			"The server removes locks that are held, or the tokens of those that were.",
			"nats stream edit "+c.Name+" --max-age=0 --max-msgs=-1 --discard=new")
	}
	if c.Replicas < 3 {
		x.add(health.Warning, "nats-sync", "replicas, sync_interval",
			fmt.Sprintf("%d, not shown to clients", c.Replicas),
			"A server acknowledges a write before it is on the disk, and syncs every two minutes by default. "+
				"After a power cut a lock that is held can be granted again. No lock is granted or renewed while "+
				"the server is down.",
			"nats stream edit "+c.Name+" --replicas=3; or jetstream { sync_interval: always } in the server's file")
	}
}

// cluster judges the servers of the bucket.
func (x *examination) cluster(c *jetstream.ClusterInfo, ttl time.Duration) {
	for _, r := range c.Replicas {
		if r.Offline || !r.Current && r.Lag > fewWrites {
			x.add(health.Warning, "nats-replica", "replica "+r.Name,
				fmt.Sprintf("offline %v, %d behind", r.Offline, r.Lag),
				"The bucket survives the loss of fewer servers now, or of none.", "start the server "+r.Name)
		}
	}
	if x.Failover > ttl*2/3 {
		x.add(health.Warning, "nats-election", "TTL", ttl.String(),
			"Two thirds of a lease are left when the leader dies before a renewal. An election takes up to "+
				election.String()+", so holders may lose their locks.",
			"a TTL of "+(election*3/2+time.Second).String()+" or more")
	}
}
