package redislock

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/health"
	"github.com/fencelock/fencelock/redislock/internal/reply"
	"github.com/redis/go-redis/v9"
)

var _ health.Examiner = (*Backend)(nil)

// clusterElection is how long the nodes of a Cluster take to put a replica into the place of
// a master that they have found dead.
const clusterElection = 2 * time.Second

// Examine reads what the settings of the server, or of each master of a Cluster, mean for
// locks of ttl. It costs six round trips to each. It needs the rights +info and +config|get;
// what it may not read becomes a note. It tries each right that the comment of New lists on
// keys of its own, which it deletes.
func (b *Backend) Examine(ctx context.Context, ttl time.Duration) (health.Result, error) {
	e, err := b.examine(ctx, func(ctx context.Context, s *serverExamination, node redis.UniversalClient) error {
		s.ttl = ttl
		return s.examine(ctx, node)
	})
	if err != nil {
		return e, err
	}
	if err := b.Ping(ctx); errors.Is(err, driver.ErrPermanent) && strings.Contains(err.Error(), reply.AdviceCluster) {
		e.Add(health.Finding{
			Severity: health.Error, Code: "redis-cluster-node", Setting: "cluster-enabled", Value: "yes",
			Why:    "The client is for one server. A node of a Cluster serves some names and refuses the others.",
			Remedy: "use redis+cluster:// in the URL, or redis.NewClusterClient",
		})
	}
	return e, nil
}

// Eviction reads whether the server deletes keys when its memory is full, and returns nil if
// not, or if the user lacks the right +info. It costs one round trip to each master.
func (b *Backend) Eviction(ctx context.Context) (*health.Finding, error) {
	e, err := b.examine(ctx, func(ctx context.Context, s *serverExamination, node redis.UniversalClient) error {
		info := node.Info(ctx, "memory")
		s.info = serverInfo(info.Val())
		s.eviction()
		return unlessRefused(info.Err())
	})
	if err != nil || len(e.Findings) == 0 {
		return nil, err
	}
	return &e.Findings[0], nil
}

// examine calls f for each server, and puts together what it finds.
func (b *Backend) examine(
	ctx context.Context, f func(ctx context.Context, s *serverExamination, node redis.UniversalClient) error,
) (health.Result, error) {
	if err := b.ready(ctx); err != nil {
		return health.Result{}, err
	}
	var mu sync.Mutex
	e := health.Result{ServerTime: true}
	err := b.eachServer(ctx, func(ctx context.Context, addr string, node redis.UniversalClient) error {
		s := &serverExamination{b: b, addr: addr}
		err := f(ctx, s, node)
		mu.Lock()
		defer mu.Unlock()
		e.Findings = append(e.Findings, s.Findings...)
		e.Failover = max(e.Failover, s.Failover)
		e.Volatile = e.Volatile || s.Volatile
		e.Hosts = append(e.Hosts, s.Hosts...)
		return err
	})
	if err != nil {
		return health.Result{}, b.failed(ctx, "reading the settings for", b.prefix, err)
	}
	return e, nil
}

// serverInfo is the answer to INFO.
type serverInfo string

func (i serverInfo) field(name string) string {
	for line := range strings.Lines(string(i)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// serverExamination is the part of an Examination that is about one server.
type serverExamination struct {
	health.Result
	b    *Backend
	addr string // empty if there is one server only
	ttl  time.Duration

	info   serverInfo
	config map[string]string // what CONFIG GET answered
}

func (s *serverExamination) add(severity health.Severity, code, setting, value, why, remedy string) {
	s.Add(health.Finding{
		Severity: severity, Code: code, Server: s.addr, Setting: setting, Value: value, Why: why, Remedy: remedy,
	})
}

func (s *serverExamination) examine(ctx context.Context, node redis.UniversalClient) error {
	if err := s.read(ctx, node); err != nil {
		return err
	}
	if one, ok := node.(*redis.Client); ok {
		if host, _, err := net.SplitHostPort(one.Options().Addr); err == nil {
			s.Hosts = []string{host}
		}
	}
	s.eviction()
	if s.info.field("role") == "slave" {
		s.add(health.Error, "redis-replica", "role", "replica of "+s.info.field("master_host"),
			"Locks cannot be kept on a replica: it takes no writes, or its master does not learn of them.",
			"connect to the master, or through Sentinel, which knows it: redis+sentinel://host:port/master-name/db")
	}
	s.persistence()
	s.replicas()
	s.cluster()
	return s.rights(ctx, node)
}

// read fills info and config, and notes what it may not read.
func (s *serverExamination) read(ctx context.Context, node redis.Cmdable) error {
	wanted := []string{"appendfsync", "min-replicas-to-write", "cluster-node-timeout"}
	info := node.Info(ctx)
	if err := unlessRefused(info.Err()); err != nil {
		return err
	}
	s.info = serverInfo(info.Val())
	if info.Err() != nil {
		s.unreadable("INFO", info.Err(), "maxmemory-policy, persistence and replicas are not known.", "+info")
	}
	s.config = map[string]string{}
	for _, name := range wanted {
		got := node.ConfigGet(ctx, name)
		if err := unlessRefused(got.Err()); err != nil {
			return err
		}
		if got.Err() != nil {
			s.unreadable("CONFIG GET", got.Err(), strings.Join(wanted, ", ")+" are not known.", "+config|get")
			break
		}
		if value, ok := got.Val()[name]; ok {
			s.config[name] = value
		}
	}
	return nil
}

func (s *serverExamination) unreadable(command string, err error, what, right string) {
	why, remedy := "The user may not read the settings: "+what, "ACL SETUSER "+s.b.user()+" "+right
	if !strings.HasPrefix(err.Error(), "NOPERM") {
		name, _, _ := strings.Cut(command, " ")
		why = "The server does not have " + name + ": " + what
		remedy = "remove rename-command " + name + " from redis.conf; if the server is a service that forbids " +
			name + ", read the settings on its pages"
	}
	s.add(health.Note, "redis-unreadable", command, health.OneLine(err.Error()), why, remedy)
}

// unlessRefused is nil for an answer of the server that refuses a command, and for no error.
func unlessRefused(err error) error {
	var answer redis.Error
	if errors.As(err, &answer) && (strings.HasPrefix(err.Error(), "NOPERM") || strings.HasPrefix(err.Error(), "ERR ")) {
		return nil
	}
	return err
}

func (s *serverExamination) eviction() {
	limit, policy := s.info.field("maxmemory"), s.info.field("maxmemory_policy")
	if limit != "0" && policy != "noeviction" && policy != "" {
		s.add(health.Error, "redis-eviction", "maxmemory-policy", policy,
			"It deletes keys when its memory is full, locks among them.", "CONFIG SET maxmemory-policy noeviction")
	}
}

func (s *serverExamination) persistence() {
	appends, syncs := s.info.field("aof_enabled"), s.config["appendfsync"]
	s.Volatile = appends == "0" || syncs != "" && syncs != "always"
	member := s.b.member
	switch {
	case appends == "":
	case member != nil && member.Durable && s.Volatile:
		s.add(health.Error, "redis-not-durable", "appendonly, appendfsync", yesNo(appends)+", "+syncs,
			"This member of a quorum was opened with Membership.Durable and may forget grants when its machine "+
				"fails. Two holders are possible then.",
			"CONFIG SET appendonly yes, then CONFIG SET appendfsync always; or open the member without Durable")
	case member != nil:
		// A member that may have forgotten something grants nothing for a while.
	case appends == "0":
		s.add(health.Warning, "redis-no-persistence", "appendonly", "no",
			"A restart forgets all locks, so a second holder may be granted each one that is held.",
			"CONFIG SET appendonly yes, then CONFIG SET appendfsync always")
	case syncs == "no":
		s.add(health.Warning, "redis-fsync", "appendfsync", syncs,
			"The system writes to disk when it likes. A power failure forgets the locks of half a minute.",
			"CONFIG SET appendfsync always")
	case syncs == "everysec":
		s.add(health.Note, "redis-fsync", "appendfsync", syncs,
			"A power failure forgets the locks of the last one or two seconds. Fencing tokens still tell holders "+
				"apart.",
			"CONFIG SET appendfsync always; a write waits for the disk then")
	}
}

func yesNo(flag string) string {
	if flag == "1" {
		return "yes"
	}
	return "no"
}

func (s *serverExamination) replicas() {
	connected, err := strconv.Atoi(s.info.field("connected_slaves"))
	if err != nil {
		return
	}
	if wants := s.b.transport.replicas; wants > 0 {
		if connected < wants/2+1 {
			s.add(health.Error, "redis-replicas-missing", "connected replicas", strconv.Itoa(connected),
				"Options.Replicas is "+strconv.Itoa(wants)+", and no lock is granted that a majority of these has "+
					"not confirmed.",
				"start the missing replicas, or set Options.Replicas to how many there are")
		}
		return
	}
	if connected > 0 && s.b.member != nil {
		s.add(health.Warning, "redis-member-replicas", "connected replicas", strconv.Itoa(connected),
			"A replica that takes the place of this member of a quorum may lack its last grants. The quarantine that "+
				"follows costs votes. If the member is durable, and the replica has lagged since its first "+
				"synchronization, nothing shows it: a lock may have two holders then.",
			"REPLICAOF NO ONE on each replica")
		return
	}
	if connected > 0 && s.config["min-replicas-to-write"] == "0" {
		s.add(health.Warning, "redis-min-replicas", "min-replicas-to-write", "0",
			"A master that is cut off from its replicas goes on granting locks after one of them was promoted. "+
				"Each lock may have two holders then.",
			"CONFIG SET min-replicas-to-write 1, then CONFIG SET min-replicas-max-lag 10; or set Options.Replicas")
	}
}

func (s *serverExamination) cluster() {
	ms, err := strconv.Atoi(s.config["cluster-node-timeout"])
	if s.info.field("cluster_enabled") != "1" || err != nil {
		return
	}
	timeout := time.Duration(ms) * time.Millisecond
	s.Failover = timeout + clusterElection
	if s.Failover > s.ttl*2/3 {
		s.add(health.Warning, "redis-node-timeout", "cluster-node-timeout", timeout.String(),
			"Two thirds of a lease of "+s.ttl.String()+" are left when a master dies before a renewal. A failover "+
				"takes about "+s.Failover.String()+", so the holders on that master lose their locks.",
			"CONFIG SET cluster-node-timeout 5000 on every node; or a TTL of "+
				(s.Failover*3/2+time.Second).Round(time.Second).String()+" or more")
	}
}

func (b *Backend) user() string {
	name := ""
	switch c := b.rdb.(type) {
	case *redis.Client:
		name = c.Options().Username
	case *redis.ClusterClient:
		name = c.Options().Username
	}
	return cmp.Or(name, "default")
}
