package swaplock

import (
	"fmt"

	"github.com/fencelock/fencelock/driver"
)

// Who writes a Store learns at once of what it forgets: what the store has of a key must not pass for an empty line.

func impossible(key, how string) error {
	return fmt.Errorf("the store is wrong about %.80q: %s", key, how)
}

// possible returns an error if st cannot be what a store has.
func (st *State) possible(key string) error {
	switch {
	case st.Now.IsZero():
		return driver.Permanent(impossible(key, "State.Now is not set"))
	case st.Version == "" && (st.Last != 0 || len(st.Document)+len(st.Holder) > 0):
		return driver.Permanent(impossible(key, "State.Version is not set, and there is something"))
	}
	return nil
}

// possible returns an error if a Swap that has won cannot return version. Nobody may step on what it leaves.
func (c *Change) possible(key, version string) error {
	switch {
	case version == c.If:
		return impossible(key, "Swap returned the version that it has replaced")
	case c.Seen != nil && c.Next == nil:
		return impossible(key, "Swap did not set Change.Next")
	}
	return nil
}

// possible returns an error if a claim cannot have arrived at p.
func (p *Place) possible(key string) error {
	switch {
	case p.Token < 1, p.At.IsZero():
		return impossible(key, "Arrive did not set Place.Token and Place.At")
	case p.Granted && p.Version == "":
		return impossible(key, "Arrive did not set Place.Version")
	}
	return nil
}
