//go:build !wasip1

package bubble_test

import (
	"time"

	"pgregory.net/rapid"
)

// ms draws a time in ms.
func ms(t *rapid.T, label string, least, most time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(int64(least/time.Millisecond), int64(most/time.Millisecond)).Draw(t, label)) * time.Millisecond
}

func pick[T any](t *rapid.T, label string, of ...T) T {
	return rapid.SampledFrom(of).Draw(t, label)
}

// one reports true once in n.
func one(t *rapid.T, label string, n int) bool { return rapid.IntRange(1, n).Draw(t, label) == n }

// programs draws programs.
func programs(calm bool) *rapid.Generator[program] {
	return rapid.Custom(func(t *rapid.T) program {
		p := program{Faults: rapid.Uint64().Draw(t, "faults"), Order: rapid.Uint64().Draw(t, "order"), Calm: calm}
		for range rapid.IntRange(1, 3).Draw(t, "procs") {
			p.Procs = append(p.Procs, drawProc(t, calm))
		}
		if p.Simultaneous = one(t, "simultaneous", 2); p.Simultaneous {
			p.makeSimultaneous()
		}
		return p
	})
}

func drawProc(t *rapid.T, calm bool) proc {
	p := proc{
		Lease:   pick(t, "lease", time.Second, 5*time.Second),
		HandOff: pick(t, "handoff", 64, 1, 2, 5),
	}
	p.Net.DropPushes = one(t, "muted", 3)
	if calm {
		p.Net.Delay = ms(t, "delay", 0, 20*time.Millisecond)
	} else {
		p.Net.Delay = p.Lease / time.Duration(rapid.IntRange(16, 100).Draw(t, "delay"))
		if one(t, "slow", 6) {
			p.Net.Delay = p.Lease / time.Duration(rapid.IntRange(3, 15).Draw(t, "delay"))
		}
		p.Net.Fail = float64(rapid.IntRange(0, 25).Draw(t, "fail")) / 100
		p.Net.Lose = float64(rapid.IntRange(0, 25).Draw(t, "lose")) / 100
		p.Net.Late = float64(rapid.IntRange(0, 20).Draw(t, "late")) / 100
		for range rapid.IntRange(0, 3).Draw(t, "outages") {
			p.Outages = append(p.Outages, outage{ms(t, "after", 0, 5*p.Lease), ms(t, "for", 0, 2*p.Lease)})
		}
	}
	if one(t, "ends", 6) {
		p.Ends = pick(t, "how", closes, shutsDown)
		p.EndsAt = ms(t, "at", time.Millisecond, 8*p.Lease)
	}
	for range rapid.IntRange(1, 3).Draw(t, "workers") {
		var w []use
		for range rapid.IntRange(1, 5).Draw(t, "uses") {
			w = append(w, drawUse(t, p.Lease))
		}
		p.Workers = append(p.Workers, w)
	}
	return p
}

func drawUse(t *rapid.T, lease time.Duration) use {
	u := use{
		Verb: pick(t, "verb", lock, lock, lock, rlock, rlock, acquire, acquire, tryLock, tryRLock, tryAcquire, lockAll, breaks, looks),
		Key:  pick(t, "key", keyA, keyA, keyA, keyB, keyMixed),
		Wait: -1,
	}
	if one(t, "rests", 2) {
		u.After = ms(t, "after", 0, lease)
	}
	if u.Verb == acquire || u.Verb == tryAcquire {
		u.Key = pick(t, "semaphore", keySem, keySem, keySem, keyMixed)
		if u.Size = 3; u.Key == keyMixed {
			u.Size = pick(t, "size", int64(3), 3, 2)
		}
		u.Weight = rapid.Int64Range(1, u.Size).Draw(t, "weight")
	}
	switch rapid.IntRange(0, 5).Draw(t, "ends") {
	case 4:
		u.Wait = ms(t, "wait", time.Millisecond, 3*lease)
	case 5:
		u.Cancel = ms(t, "cancel", time.Millisecond, 3*lease)
	}
	if u.Verb.try() || u.Verb == lockAll {
		u.Wait = -1
	}
	switch u.Times = pick(t, "times", usual, usual, usual, usual, ttl, noRenewal, maxHold, minHold); u.Times {
	case ttl, noRenewal, maxHold:
		u.Length = ms(t, "length", lease/2, 2*lease)
	case minHold:
		u.Length = ms(t, "length", 0, lease)
	}
	u.Odd = one(t, "odd", 8)
	if u.Verb != lockAll {
		u.Inner = pick(t, "inner", nothing, nothing, nothing, nothing, reenters, outlives, deadlocks)
	}
	u.Hold = ms(t, "hold", 0, lease/10)
	if one(t, "long", 2) {
		u.Hold = ms(t, "longer", 0, 2*lease)
	}
	u.Renew, u.Dead = one(t, "renew", 5), one(t, "dead", 5)
	return u
}
