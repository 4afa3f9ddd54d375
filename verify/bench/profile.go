package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// profiled are the cases that profiles are taken of.
var profiled = []struct {
	name      string
	title, zh string
	size      int
	peers     []string
}{
	{"free", "free pair", "空闲的一次", 1, []string{ours, floor}},
	{"keys", "512 keys", "512 个键", 512, []string{ours, floor}},
	{"hot", "hot key, 64", "热键，64", 64, []string{ours}},
}

// shares are the kinds of work that samples are put into, in the order in which they are
// asked: a sample belongs to the first kind that one of its frames is of, from the
// innermost frame on.
var shares = []struct {
	name, head, zh string
	frames         []string // beginnings of names of functions
}{
	{"network", "system calls of the network", "网络系统调用", []string{
		"syscall.", "internal/runtime/syscall.", "internal/poll.(*FD).Read", "internal/poll.(*FD).Write", "internal/poll.ignoringEINTRIO", "net.",
		"runtime.netpoll", "runtime.entersyscall", "runtime.exitsyscall", "runtime.reentersyscall"}},
	{"memory", "memory: allocation and its collection", "内存：分配与回收", []string{
		"runtime.mallocgc", "runtime.newobject", "runtime.makeslice", "runtime.growslice", "runtime.gcBgMarkWorker", "runtime.gcAssist",
		"runtime.bgsweep", "runtime.bgscavenge", "runtime.gcStart", "runtime.memclr", "runtime.wbBufFlush", "runtime.concatstring", "runtime.slicebytetostring"}},
	{"scheduler", "Go's scheduler: waking, parking, timers", "Go 调度器：唤醒、停泊、定时器", []string{
		"runtime.schedule", "runtime.findRunnable", "runtime.park_m", "runtime.mcall", "runtime.goready", "runtime.ready", "runtime.systemstack",
		"runtime.futex", "runtime.selectgo", "runtime.chan", "runtime.gopark", "runtime.goexit0", "runtime.newproc", "runtime.wakep", "runtime.mstart",
		"time.", "runtime.(*timer", "runtime.lock", "runtime.unlock", "runtime.usleep", "runtime.notewakeup", "runtime.sem", "sync.runtime_", "runtime.casgstatus",
		"runtime.send", "runtime.recv", "runtime.closechan", "runtime.procyield", "runtime.osyield", "internal/sync.", "sync."}},
	{"client", "go-redis", "go-redis", []string{"github.com/redis/go-redis/", "bufio."}},
	{"backend", "fencelock's Redis backend", "fencelock 的 Redis 后端", []string{"github.com/fencelock/fencelock/redislock."}},
	{"core", "fencelock's core", "fencelock 的核心", []string{"github.com/fencelock/fencelock.", "github.com/fencelock/fencelock/driver.", "github.com/fencelock/fencelock/fence."}},
	{"bench", "the benchmark itself", "测量程序自身", []string{"github.com/fencelock/fencelock/verify/"}},
}

// profile is what the processor time of this process goes into. Its rates are no
// results: a profile costs time itself.
func (b *Bench) profile(ctx context.Context) error {
	b.used += 10000
	for _, c := range profiled {
		for _, name := range c.peers {
			p, err := findPeer(name)
			if err != nil {
				return err
			}
			v, err := b.profileOf(ctx, p, c.size, c.name != "hot")
			if err != nil {
				return err
			}
			b.record(Result{"profile " + c.name, c.size, name, 0, v})
		}
	}
	return nil
}

func (b *Bench) profileOf(ctx context.Context, p Peer, size int, apart bool) (_ Values, err error) {
	l, err := p.Open(b.env())
	if err != nil {
		return nil, err
	}
	defer l.Close()
	var out bytes.Buffer
	if err := pprof.StartCPUProfile(&out); err != nil {
		return nil, fmt.Errorf("%w: leave out the case profile, or -cpuprofile", err)
	}
	key := b.key()
	guards := make([]guard, size)
	c := gather(l, size, func(i int) (string, *guard) {
		if apart {
			return b.key(), &guards[i]
		}
		return key, &guards[0]
	})
	for _, w := range c.workers {
		w.pairs, w.quiet = true, true
	}
	c.begin()
	err = pause(ctx, b.turn(2*time.Second))
	pprof.StopCPUProfile()
	if err != nil {
		return nil, err
	}
	if err := c.halt(); err != nil {
		return nil, err
	}
	taken, err := profile.Parse(&out)
	if err != nil {
		return nil, err
	}
	v := Values{"pairs": float64(c.pairs())}
	count(taken, v)
	return v, nil
}

// count puts the samples of a profile into kinds, each in µs for one pair.
func count(taken *profile.Profile, v Values) {
	index := len(taken.SampleType) - 1 // nanoseconds
	for _, s := range taken.Sample {
		v[kindOf(s)] += float64(s.Value[index]) / 1e3 / v["pairs"]
	}
}

func kindOf(s *profile.Sample) string {
	for _, at := range s.Location {
		for _, line := range at.Line {
			if line.Function == nil {
				continue
			}
			for _, k := range shares {
				for _, prefix := range k.frames {
					if strings.HasPrefix(line.Function.Name, prefix) {
						return k.name
					}
				}
			}
		}
	}
	return "rest"
}

// printProfile prints what the time goes into.
func printProfile(w io.Writer, rs results, l language) {
	type who struct {
		title, peer string
		values      Values
	}
	var all []who
	for _, c := range profiled {
		for _, r := range rs.part("profile "+c.name, 0) {
			all = append(all, who{l.pick(c.title, c.zh), l.pick(r.Peer, inChinese(r.Peer)), r.Values})
		}
	}
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(w, "**%s**\n\n| |", l.pick("What a pair costs of this process' processor time, µs (share)", "一次加锁与释放占本进程处理器时间多少 µs（份额）"))
	for _, x := range all {
		fmt.Fprintf(w, " %s: %s |", x.title, x.peer)
	}
	fmt.Fprintf(w, "\n| --- |%s\n", strings.Repeat(" --: |", len(all)))
	rows := append(shares[:len(shares):len(shares)], struct {
		name, head, zh string
		frames         []string
	}{name: "rest", head: "the rest", zh: "其余"})
	for _, k := range rows {
		fmt.Fprintf(w, "| %s |", l.pick(k.head, k.zh))
		for _, x := range all {
			whole := 0.0
			for _, other := range rows {
				whole += x.values[other.name]
			}
			fmt.Fprintf(w, " %s (%.0f %%) |", short(x.values[k.name]), 100*x.values[k.name]/whole)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}
