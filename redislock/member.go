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
	"github.com/fencelock/fencelock/redislock/internal/transport"
	"github.com/redis/go-redis/v9"
)

var _ ballot.Member = (*Backend)(nil)

// membership is what a member of a quorum tells its server.
type membership struct {
	ballot.Membership
	key, terms string
}

// join makes b a member of a quorum.
func (b *Backend) join(o *Options) {
	m, err := o.Member.Settled()
	b.member = &membership{m, b.prefix + "@member", encodeTerms(&m)}
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

// ballotCommand is Enter of a claim with a ballot, or its Reenter.
func (b *Backend) ballotCommand(c *driver.Claim, reenter bool) *transport.Command {
	ballot := string(appendPadded(nil, c.Ballot, 19))
	argv := make([]any, 0, 6)
	argv = append(argv, encodeClaim(c, b.channel), recordTTL(c.TTL), digit(c.NoWait), ballot, b.member.terms)
	if reenter {
		argv = append(argv, time.Now().UnixMicro())
	}
	keys := append(append(make([]any, 0, 4), b.keys(c.Key)...), b.member.key)
	return transport.NewCommand(ballotScript, keys, argv...)
}

// encodeTerms writes what the members of a quorum have agreed on.
func encodeTerms(m *ballot.Membership) string {
	return fmt.Sprintf("%016d %016d %s %s", m.Skew.Microseconds(), m.MaxTTL.Microseconds(), digit(m.Durable), m)
}

func digit(yes bool) string {
	if yes {
		return "1"
	}
	return "0"
}

// Reenter puts back a claim that the server has lost, in one request, as
// ballot.Member says.
func (b *Backend) Reenter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Ticket{}, err
	}
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
		return "", failed(ctx, "asking which server this is", "", err)
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
	got := b.transport.Do(ctx,
		transport.NewCommand(initialiseScript, []any{b.member.key}, b.member.String(), digit(change)))
	if got.Err != nil {
		return b.answered(ctx, doing, "", got)
	}
	if s, _ := got.Answer.(string); s != "+" {
		return ballotRefusal(doing, "", s)
	}
	return nil
}

// ballotRefusal reads an answer of the script ballot that enter has not.
func ballotRefusal(doing, key, s string) error {
	if len(s) > 1 {
		n, err := strconv.ParseInt(s[1:], 10, 64)
		switch {
		case s[0] == 'b' && err == nil:
			return ballot.Error{Last: n}
		case s[0] == 'q' && err == nil:
			return &ballot.QuarantineError{Left: time.Duration(n) * time.Microsecond}
		case s[0] == 'c':
			lasts, ahead, _ := strings.Cut(s[1:], " ")
			r := reply{parts: []any{lasts, ahead}}
			left, apart := r.duration(), r.duration().Abs()
			if !r.bad {
				return fmt.Errorf("its clock and the clock of this client are %v apart, more than the Skew: %w",
					apart.Round(time.Millisecond), &ballot.QuarantineError{Left: left})
			}
		case strings.HasPrefix(s, "mskew "):
			return driver.Permanent(fmt.Errorf(
				"redis: this server is a member of a quorum with %s: give all programs the same ballot.Membership, by "+
					"skew=, quarantine= (the maxttl) and durable= in a redlock URL; or change it with "+
					"fencelock init --change", s[1:]))

		}
	}
	return badAnswer(doing, key, s)
}
