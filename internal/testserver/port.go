package testserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Servers listen on ports from firstPort on, and a node of a Redis Cluster on another one
// that is manyPorts higher. Systems give out higher ones, so nobody gets the port of a
// server that does not run just now.
const (
	firstPort = 10000
	manyPorts = 10000
)

// port is a TCP port on loopback that belongs to one server of all processes that use
// this package, until it is freed or its process ends. What says so is a UDP socket on
// the same number, for a server needs the TCP port for itself, and the system frees
// sockets of processes that were killed.
type port struct {
	number int
	claim  net.PacketConn
}

// takePorts takes n ports on which nobody listens.
func takePorts(n int) ([]*port, error) {
	var ports []*port
	begin := rand.IntN(manyPorts)
	for i := 0; i < manyPorts && len(ports) < n; i++ {
		number := firstPort + (begin+i)%manyPorts
		addr := fmt.Sprintf("127.0.0.1:%d", number)
		claim, err := net.ListenPacket("udp4", addr)
		if err != nil {
			continue
		}
		// Somebody else's server may be there. A listener would tell, too, but a child of this process that is being
		// started has it for another moment after it was closed here.
		if c, err := net.Dial("tcp4", addr); err == nil {
			c.Close()
			claim.Close()
			continue
		}
		ports = append(ports, &port{number: number, claim: claim})
	}
	if len(ports) < n {
		freePorts(ports)
		return nil, fmt.Errorf("no %d free loopback ports from %d to %d", n, firstPort, firstPort+manyPorts-1)
	}
	return ports, nil
}

// kept are the ports of Ports. A socket that nobody refers to is closed.
var kept struct {
	mu    sync.Mutex
	ports []*port
}

// Ports returns n ports on which nobody listens, and which belong to this process until it ends.
func Ports(n int) (numbers []int, err error) {
	ports, err := takePorts(n)
	for _, p := range ports {
		numbers = append(numbers, p.number)
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	kept.ports = append(kept.ports, ports...)
	return numbers, err
}

func freePorts(ports []*port) {
	for _, p := range ports {
		p.claim.Close() // a second time says so, and no more
	}
}
