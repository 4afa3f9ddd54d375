package testserver

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// zookeeperJar is where Debian keeps ZooKeeper; its manifest names what else the
// class path needs.
const zookeeperJar = "/usr/share/java/zookeeper.jar"

// zookeeperClasses is the class path. The manifest forgets two parts that TLS needs.
const zookeeperClasses = zookeeperJar + ":/usr/share/java/slf4j-simple.jar" +
	":/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar"

// zookeeperTick is the server's unit of time. Sessions end at a multiple of it.
const zookeeperTick = 200 * time.Millisecond

// zookeeperOf is one server of an ensemble of members, or, without members, one
// that stands alone.
func zookeeperOf(id int, members []string) kind {
	return kind{
		name:    "zookeeper",
		program: "java",
		install: "on Debian run: apt-get install zookeeper default-jre-headless",
		prepare: func(s *Server) error { return writeZooKeeperConfig(s, id, members) },
		args:    zookeeperArgs,
		ready:   zookeeperServes,
		url:     func(s *Server) string { return "zk://" + s.Addr() },
	}
}

// ZooKeeper starts one ZooKeeper server for a test. Its sessions may be as short as 400 ms.
var ZooKeeper = forTest(always(zookeeperOf(0, nil)))

// StartZooKeeper starts one ZooKeeper server in a folder.
var StartZooKeeper = inFolder(always(zookeeperOf(0, nil)))

// ZooKeeperEnsemble starts n servers that keep one store together, and stops them
// when the test ends. What they acknowledged is there again after a Restart.
func ZooKeeperEnsemble(tb TB, n int, opts ...Option) []*Server {
	tb.Helper()
	ports, err := takePorts(3 * n)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	var members []string
	for i, p := range ports[:n] {
		members = append(members, fmt.Sprintf("server.%d=127.0.0.1:%d:%d;127.0.0.1:%d",
			i+1, ports[n+i].number, ports[2*n+i].number, p.number))
	}
	var kinds []kind
	for i := range n {
		k := zookeeperOf(i+1, members)
		k.ports = []*port{ports[i], ports[n+i], ports[2*n+i]}
		kinds = append(kinds, k)
	}
	return startTogether(tb, kinds, opts)
}

func writeZooKeeperConfig(s *Server, id int, members []string) error {
	if _, err := os.Stat(zookeeperJar); err != nil {
		return fmt.Errorf("ZooKeeper is not installed: %s (%w)", s.kind.install, err)
	}
	data := filepath.Join(s.dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	lines := []string{
		"dataDir=" + data,
		fmt.Sprintf("tickTime=%d", zookeeperTick.Milliseconds()),
		fmt.Sprintf("minSessionTimeout=%d", 2*zookeeperTick.Milliseconds()),
		"maxSessionTimeout=600000",
		"initLimit=50",
		"syncLimit=10",
		"maxClientCnxns=0",
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
	}
	if len(members) == 0 {
		lines = append(lines, "clientPortAddress=127.0.0.1", fmt.Sprintf("clientPort=%d", s.port))
	} else {
		lines = append(lines, members...)
		if err := os.WriteFile(filepath.Join(data, "myid"), fmt.Appendln(nil, id), 0o600); err != nil {
			return err
		}
	}
	return s.writeConfig("zoo.cfg", lines...)
}

func zookeeperArgs(s *Server) []string {
	return []string{
		"-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Djava.awt.headless=true",
		"-Dzookeeper.forceSync=no", // a killed server finds what it wrote in the page cache
		"-Dzookeeper.jmx.log4j.disable=true",
		"-Dznode.container.checkIntervalMs=500",
		"-Dznode.container.maxPerMinute=600000",
		"-cp", zookeeperClasses,
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"org.apache.zookeeper.server.quorum.QuorumPeerMain",
		filepath.Join(s.dir, "zoo.cfg"),
	}
}

// zookeeperServes asks for the server's role: one that has none yet does not serve.
func zookeeperServes(ctx context.Context, s *Server) error {
	text, err := s.FourLetters(ctx, "srvr")
	if err == nil && !strings.Contains(text, "Mode:") {
		err = fmt.Errorf("it says %q", text)
	}
	return err
}

// FourLetters sends one of ZooKeeper's commands of four letters, as srvr or cons,
// and returns the answer.
func (s *Server) FourLetters(ctx context.Context, word string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return s.exchange(ctx, word, io.ReadAll)
}

// Leads reports whether this ZooKeeper server leads its ensemble just now.
func (s *Server) Leads() bool {
	text, err := s.FourLetters(context.Background(), "srvr")
	return err == nil && strings.Contains(text, "Mode: leader")
}
