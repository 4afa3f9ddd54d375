package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/redis/go-redis/v9"
)

var _ ballot.Member = (*Backend)(nil)

// join makes b a member of a quorum.
func (b *Backend) join(o *Options) {
	m, err := o.Member.Settled()
	b.member = &m
	_, one := b.rdb.(*redis.Client)
	switch {
	case b.invalid != nil:
	case err != nil:
		b.invalid = fmt.Errorf("redis: %w", err)
	case !one:
		b.invalid = fmt.Errorf("redis: a member of a quorum is one server by itself, not a %T", b.rdb)
	case o.Replicas > 0:
		b.invalid = errors.New("redis: a member of a quorum does not count replicas: the other members stand for it")
	}
}

// IsMember reports whether the backend was opened with Options.Member.
func (b *Backend) IsMember() bool { return b.member != nil }

var errNoMember = driver.Permanent(
	errors.New("redis: no ballots are taken: open the backend with Options.Member"))

// vote gives an Enter what script/member.lua needs to judge a ballot.
func (b *Backend) vote(r *request, ballot int64, reenter bool) {
	clock := ""
	if reenter {
		clock = strconv.FormatInt(time.Now().UnixMicro(), 10)
	}
	m := b.member
	r.script = ballotScript
	r.args = append(r.args, ballot, m.Skew.Microseconds(), m.MaxTTL.Microseconds(), digit(m.Durable), m.String(), clock)
}

// Reenter puts back a claim that the server has lost, in one request, as
// ballot.Member says.
func (b *Backend) Reenter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if c.Ballot == 0 {
		return driver.Ticket{}, errNoMember
	}
	return b.enter(ctx, c, true)
}

// StoreID returns the run ID of the server, in one request. It differs between any two servers
// that run.
func (b *Backend) StoreID(ctx context.Context) (string, error) {
	if err := b.ready(ctx); err != nil {
		return "", err
	}
	info, err := b.rdb.Info(ctx, "server").Result()
	if err != nil {
		return "", b.failed(ctx, "asking which server this is", "", err)
	}
	return serverInfo(info).field("run_id"), nil
}

// Initialise ends the quarantine of a member, in one request.
func (b *Backend) Initialise(ctx context.Context) error { return b.initialise(ctx, false) }

// ChangeMembership gives a member the Membership of b in place of the one that it has agreed on, and
// ends its quarantine, in one request. Programs with the old Membership are refused from then on.
// The caller knows that no lock is held, as for Initialise.
func (b *Backend) ChangeMembership(ctx context.Context) error { return b.initialise(ctx, true) }

func (b *Backend) initialise(ctx context.Context, change bool) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	if b.member == nil {
		return errNoMember
	}
	const doing = "initialising"
	got := b.transport.do(ctx,
		&request{script: initialiseScript, key: b.prefix + "@member", args: []any{b.member.String(), digit(change)}})
	if got.err != nil {
		return b.answered(ctx, doing, "", got)
	}
	if got.answer != "+" {
		return ballotRefusal(doing, "", got.answer)
	}
	return nil
}

// ballotRefusal reads an answer of script/member.lua that enter has not.
func ballotRefusal(doing, key string, answer any) error {
	s, _ := answer.(string)
	f := fields{rest: s + " "}
	switch f.take(1) {
	case "b":
		if last := f.number(" "); !f.bad {
			return ballot.Error{Last: last}
		}
	case "q":
		if left := f.duration(); !f.bad {
			return &ballot.QuarantineError{Left: left}
		}
	case "c":
		left, apart := f.duration(), f.duration()
		if !f.bad {
			return fmt.Errorf("its clock and the clock of this client are %v apart, more than the Skew: %w",
				apart.Round(time.Millisecond), &ballot.QuarantineError{Left: left})
		}
	case "m":
		if strings.HasPrefix(f.rest, "skew ") {
			return driver.Permanent(fmt.Errorf(
				"redis: this server is a member of a quorum with %s: give all programs the same ballot.Membership, by "+
					"skew=, quarantine= (the maxttl) and durable= in a redlock URL; or change it with "+
					"fencelock init --change", s[1:]))
		}
	}
	return badAnswer(doing, key, answer)
}
