package testserver

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// clusterSlots is how many slots a Redis Cluster has.
const clusterSlots = 16384

// ClusterGroup is a Redis Cluster of three masters with a replica each.
type ClusterGroup struct {
	Servers []*Server // at first the masters in order of their slots, then the replica of each

	elected map[*Server]time.Time // when a replica took the place of its master
}

// electionsApart is how long a replica that has won an election cannot win another, with
// the nodes' time-out of a second: asked before, Redis 7.0 counts the old votes, or does
// nothing (https://github.com/redis/redis/pull/8753).
const electionsApart = 4 * time.Second

// givesUp is longer than a replica tries to take the place of a master that is well.
const givesUp = 6 * time.Second

// AddSlots is the command that gives a node the slots from one up to another, in words that
// Redis before 7.0 knows as well.
func AddSlots(from, to int) []string {
	args := []string{"CLUSTER", "ADDSLOTS"}
	for slot := from; slot < to; slot++ {
		args = append(args, strconv.Itoa(slot))
	}
	return args
}

// RedisCluster starts a Cluster for a test and stops it when the test ends. It
// returns when all nodes agree who has which slots. opts are for all nodes. A master
// that does not answer for a second counts as dead.
func RedisCluster(tb TB, opts ...Option) *ClusterGroup {
	tb.Helper()
	const masters = 3
	g := &ClusterGroup{elected: map[*Server]time.Time{}}
	config := Config("cluster-enabled yes", "cluster-config-file nodes.conf", "cluster-node-timeout 1000",
		"cluster-migration-barrier 99", "cluster-require-full-coverage no") // a master keeps its replica
	for i := range 2 * masters {
		s := Redis(tb, append(append(replication(), config), opts...)...)
		// Nodes that all began with the same epoch would first have to sort that out.
		mustAsk(tb, s, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i < masters {
			mustAsk(tb, s, AddSlots(clusterSlots*i/masters, clusterSlots*(i+1)/masters)...)
		}
		g.Servers = append(g.Servers, s)
	}
	for _, s := range g.Servers {
		for _, o := range g.Servers {
			if s != o {
				host, port, _ := net.SplitHostPort(o.Addr())
				mustAsk(tb, s, "CLUSTER", "MEET", host, port)
			}
		}
	}
	for i, s := range g.Servers[masters:] {
		master := g.ID(g.Servers[i])
		// A node follows only one that it knows.
		mustCome(tb, "the node on "+s.Addr()+" follows its master", func() bool {
			_, err := s.Ask("CLUSTER", "REPLICATE", master)
			return err == nil
		})
	}
	mustCome(tb, "the nodes of the cluster agree", g.Settled)
	return g
}

// ID returns the name of a node among the others, or nothing if it does not answer.
func (g *ClusterGroup) ID(s *Server) string { return answer(s, "CLUSTER", "MYID") }

// Addrs returns the addresses of all nodes.
func (g *ClusterGroup) Addrs() []string { return addrs(g.Servers) }

// Slot returns the slot of a key.
func (g *ClusterGroup) Slot(key string) int {
	for _, s := range g.Servers {
		if n, err := strconv.Atoi(answer(s, "CLUSTER", "KEYSLOT", key)); err == nil {
			return n
		}
	}
	return -1
}

// Master returns the server that has a slot by its own account, or nil.
func (g *ClusterGroup) Master(slot int) *Server {
	return first(g.Servers, func(s *Server) bool { return owns(answer(s, "CLUSTER", "NODES"), slot) })
}

// Masters returns the servers that are masters by their own account.
func (g *ClusterGroup) Masters() []*Server {
	return slices.DeleteFunc(slices.Clone(g.Servers), func(s *Server) bool { return !isMaster(s) })
}

// Replica returns a server that follows the master, or nil.
func (g *ClusterGroup) Replica(master *Server) *Server {
	return first(g.Servers, func(s *Server) bool { return follows(s, master) })
}

// follows reports whether a server says that it is a replica of another.
func follows(s, master *Server) bool {
	_, port, _ := net.SplitHostPort(master.Addr())
	role := strings.Split(answer(s, "ROLE"), "\n")
	return len(role) > 2 && role[0] == "slave" && role[2] == port
}

// owns reports whether the node whose view this is says that it has the slot itself.
func owns(nodes string, slot int) bool {
	for line := range strings.Lines(nodes) {
		f := strings.Fields(line)
		if len(f) < 9 || !strings.Contains(f[2], "myself") || !strings.Contains(f[2], "master") {
			continue
		}
		for _, r := range f[8:] {
			var from, to int // without the second number, from alone
			n, _ := fmt.Sscanf(r, "%d-%d", &from, &to)
			if n > 0 && from <= slot && slot <= max(from, to) {
				return true
			}
		}
	}
	return false
}

// Settled reports whether every node that runs says that all is well, sees the same
// masters, and follows its master if it has one.
func (g *ClusterGroup) Settled() bool {
	view := ""
	for _, s := range g.Servers {
		if s.Pid() == 0 {
			continue
		}
		info := answer(s, "CLUSTER", "INFO")
		if !strings.Contains(info, "cluster_state:ok") ||
			!strings.Contains(info, "cluster_slots_ok:"+strconv.Itoa(clusterSlots)) ||
			!strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r\n", len(g.Servers))) {
			return false
		}
		if strings.HasPrefix(answer(s, "ROLE"), "slave") && !linked(s) {
			return false
		}
		// Clients are told of replicas here, once they are known to have data.
		sees := strings.Split(answer(s, "CLUSTER", "SLOTS"), "\n")
		slices.Sort(sees)
		if view != "" && strings.Join(sees, "\n") != view {
			return false
		}
		view = strings.Join(sees, "\n")
	}
	return view != ""
}

// Failover makes the replica of a master take its place while it is well, and returns
// when the old master follows the new one. It waits for electionsApart if it must, and asks again when the
// replica has given up. One goroutine at a time may call it.
func (g *ClusterGroup) Failover(master *Server) (*Server, error) {
	replica := g.Replica(master)
	if replica == nil {
		return nil, fmt.Errorf("failing over: %s has no replica", master.Addr())
	}
	<-time.After(time.Until(g.elected[replica].Add(electionsApart)))
	var asked time.Time
	err := comesToPass("the replica took the place of its master", func() bool {
		if isMaster(replica) {
			return follows(master, replica)
		}
		if time.Since(asked) > givesUp {
			answer(replica, "CLUSTER", "FAILOVER") // refused if it is the master by now
			asked = time.Now()
		}
		return false
	})
	g.elected[replica] = time.Now()
	return replica, err
}

// Move is a slot on its way from one master to another.
type Move struct {
	Slot     int
	From, To *Server
	g        *ClusterGroup
}

// BeginMove makes a slot ready to leave its master for another one.
func (g *ClusterGroup) BeginMove(slot int, to *Server) (*Move, error) {
	m := &Move{Slot: slot, From: g.Master(slot), To: to, g: g}
	if m.From == nil || m.From == to {
		return nil, fmt.Errorf("moving slot %d to %s: it is not elsewhere", slot, to.Addr())
	}
	n := strconv.Itoa(slot)
	if _, err := to.Ask("CLUSTER", "SETSLOT", n, "IMPORTING", g.ID(m.From)); err != nil {
		return nil, fmt.Errorf("moving slot %d: %w", slot, err)
	}
	if _, err := m.From.Ask("CLUSTER", "SETSLOT", n, "MIGRATING", g.ID(to)); err != nil {
		return nil, fmt.Errorf("moving slot %d: %w", slot, err)
	}
	return m, nil
}

// Key moves one key, and reports whether there was one to move.
func (m *Move) Key() (bool, error) {
	names, err := m.From.Ask("CLUSTER", "GETKEYSINSLOT", strconv.Itoa(m.Slot), "1")
	if err != nil || names == "" {
		return false, err
	}
	host, port, _ := net.SplitHostPort(m.To.Addr())
	args := []string{"MIGRATE", host, port, "", "0", "5000"}
	if p := m.To.opts.password; p != "" {
		args = append(args, "AUTH", p)
	}
	if _, err := m.From.Ask(append(args, "KEYS", names)...); err != nil {
		return false, fmt.Errorf("moving %q: %w", names, err)
	}
	return true, nil
}

// End gives the slot to its new master. No key may be left at the old one.
func (m *Move) End() error {
	id, n := m.g.ID(m.To), strconv.Itoa(m.Slot)
	for _, s := range []*Server{m.To, m.From} {
		if _, err := s.Ask("CLUSTER", "SETSLOT", n, "NODE", id); err != nil {
			return fmt.Errorf("moving slot %d: %w", m.Slot, err)
		}
	}
	return nil
}
