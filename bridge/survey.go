package bridge

import (
	"context"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limit"
)

// Phase says which stores a program uses while a fleet moves.
type Phase int

// The phases, in the order of the way there.
const (
	OldOnly Phase = iota
	Both
	NewOnly
)

func (p Phase) String() string { return [...]string{"old", "both", "new"}[p] }

// Seen is a claim that Survey has seen.
type Seen struct {
	Phase Phase
	Key   string
	Owner string
	Waits bool
}

// Survey returns the claims of both stores whose keys begin with prefix, and the phases of their
// programs. It sees programs that hold or wait, and no others. A claim that joins or leaves during
// the call may be left out. The two backends are used directly, and not through a bridge.
func Survey(ctx context.Context, old, new driver.Backend, prefix string) ([]Seen, error) {
	inNew, err := claimsOf(ctx, store{new, "the new store"}, prefix)
	if err != nil {
		return nil, err
	}
	inOld, err := claimsOf(ctx, store{old, "the old store"}, prefix)
	if err != nil {
		return nil, err
	}
	var all []Seen
	for id, c := range inOld {
		_, inBoth := inNew[id]
		if c.bridged || inBoth {
			c.Phase = Both
		}
		all = append(all, c.Seen)
	}
	for id, c := range inNew {
		if _, inBoth := inOld[id]; !c.bridged && !inBoth {
			c.Phase = NewOnly
			all = append(all, c.Seen)
		}
	}
	return all, nil
}

// surveyed is a claim of one store.
type surveyed struct {
	Seen
	bridged bool // its owner says so
}

// claimsOf returns the claims of s by key and ID, without those whose holder has left.
func claimsOf(ctx context.Context, s store, prefix string) (map[[2]string]surveyed, error) {
	found := map[[2]string]surveyed{}
	for l, err := range s.Lines(ctx, prefix) {
		if err != nil {
			return nil, s.failed(err)
		}
		for _, c := range l.Claims {
			if owner, bridged := strings.CutSuffix(c.Owner, ownerMark); !c.Lingering {
				found[[2]string{l.Key, c.ID}] = surveyed{Seen{Key: l.Key, Owner: owner, Waits: !c.Granted}, bridged}
			}
		}
	}
	return found, nil
}

// ownerMark ends the owner of a claim of a bridge in both stores, so that people and Survey see
// which programs use both.
const ownerMark = " (bridge)"

// marked is owner with the mark, unless that is too long.
func marked(owner string) string {
	if len(owner)+len(ownerMark) > limit.Owner {
		return owner
	}
	return owner + ownerMark
}

// unmarked returns what a ticket or a refusal of one store says of the first claim, without the mark.
func unmarked(b *driver.BusyError) *driver.BusyError {
	if b == nil {
		return nil
	}
	plain := *b
	plain.Owner = strings.TrimSuffix(b.Owner, ownerMark)
	return &plain
}
