package sqllock

import (
	"context"
	"fmt"

	"github.com/fencelock/fencelock/driver"
)

var _ voter = (*postgres)(nil)

// vote is enter with a ballot, in the same one round trip.
func (p *postgres) vote(ctx context.Context, c *driver.Claim, m *driver.Membership, again bool) (driver.Ticket, effects, error) {
	args := append(p.entry(c), c.Ballot, again, m.Skew.Microseconds(), m.MaxTTL.Microseconds(), m.Durable, m.String())
	r, err := p.step(ctx, "enter the line of", c.Key, p.q["vote"], args...)
	return p.entered(ctx, c, &r, err)
}

// initialise ends the quarantine, in one round trip.
func (p *postgres) initialise(ctx context.Context, m *driver.Membership) error {
	r, err := p.step(ctx, "initialise", "", p.q["initialise"], m.MaxTTL.Microseconds(), m.Durable, m.String())
	if err == nil {
		err = r.refuse
	}
	return err
}

// noMember says why the database cannot be the member that it is said to be.
func noMember(what, note string) error {
	switch what {
	case "other":
		return permanent(fmt.Errorf("postgres: this database is a member of a quorum with %s: open it with the same driver.Membership everywhere", note))
	case "careless":
		return permanent(fmt.Errorf("postgres: the member is said to be Durable, but with %s = off the server loses what it has acknowledged when it crashes: set it to on, or leave Durable out", note))
	}
	return permanent(fmt.Errorf("postgres: what the table %s says of the member is damaged: delete its row 'member'", note))
}
