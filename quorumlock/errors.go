package quorumlock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/internal/driverutil"
)

var (
	errNoAnswer = errors.New("no answer in time")
	errTooLate  = errors.New("the answers came too late for the lease")
	errNotAsked = errors.New("the attempt was over before it was asked")
	errLeftover = errors.New("what it has is left from an attempt that failed")
	errWaits    = errors.New("the claim waits, where no claim of a quorum does")
	errTwins    = errors.New("it is the same store as another member, or the request reached the wrong server")
	errSilent   = errors.New("it has not responded lately, and too many requests to it are under way")
)

var errNoChange = driver.Permanent(errors.New("its membership cannot be changed; delete it in the store, " +
	"while no program of the quorum runs"))

// errLeft is the answer to the renewal of a claim that leaves.
var errLeft = driver.GoneError{Reason: "it has left"}

// definite reports whether err says that the request did nothing: no claim entered,
// or none is there.
func definite(err error) bool {
	return driver.Gone(err) || errors.Is(err, driver.ErrKind) || errors.Is(err, driver.ErrClosed) ||
		errors.Is(err, errTwins) || errors.Is(err, errSilent) ||
		errors.As(err, new(*driver.BusyError)) || errors.As(err, new(ballot.Error)) ||
		errors.As(err, new(*ballot.QuarantineError)) || errors.Is(err, driver.ErrRefused) ||
		errors.Is(err, errNotAsked)
}

// underNotice returns the notice that err tells of, if it does.
func underNotice(err error) (notice driver.GoneError, ok bool) {
	ok = errors.As(err, &notice) && notice.Left > 0
	return notice, ok
}

// leaveOver reports whether err, a node's answer to a Leave, leaves nothing to repeat. A node that
// refuses for now still has the claim.
func leaveOver(err error) bool {
	return err == nil || definite(err) && !driverutil.RefusedForNow(err)
}

// permanent reports whether asking again is useless.
func permanent(err error) bool { return errors.Is(err, driver.ErrPermanent) }

// reasonGone returns the best of two reasons for which a claim is gone: an operator's,
// or else the first that says something. A claim under notice is not gone.
func reasonGone(best driver.GoneError, err error) driver.GoneError {
	var g driver.GoneError
	if errors.As(err, &g) && g.Left == 0 && (g.Broken || best.Reason == "" && !best.Broken) {
		return g
	}
	return best
}

// shortError says that too few nodes did what was asked.
type shortError struct {
	b    *Backend
	key  string
	have int
	errs []error // by node
}

func (e *shortError) Error() string {
	texts := e.texts()
	return fmt.Sprintf("%q: %d of %d nodes acknowledged, %d are needed (%s)",
		e.key, e.have, len(e.b.nodes), e.b.majority, strings.Join(texts, "; "))
}

// texts says what the nodes have said, each text once. Nodes in quarantine say the longest one.
func (e *shortError) texts() (texts []string) {
	var longest *ballot.QuarantineError
	for _, err := range e.errs {
		if q := (*ballot.QuarantineError)(nil); errors.As(err, &q) && (longest == nil || q.Left > longest.Left) {
			longest = q
		}
	}
	said := map[string][]string{} // names of nodes
	var order []string
	for i, err := range e.errs {
		if err == nil {
			continue
		}
		text := err.Error()
		if errors.As(err, new(*ballot.QuarantineError)) {
			text = longest.Error()
		}
		if said[text] == nil {
			order = append(order, text)
		}
		said[text] = append(said[text], e.b.nodes[i].name)
	}
	for _, text := range order {
		who := strings.Join(said[text], ", ")
		if len(said[text]) == len(e.errs) {
			who = fmt.Sprintf("each of the %d nodes", len(e.errs))
		}
		texts = append(texts, who+": "+text)
	}
	return texts
}

// As finds the quarantine of a node, for callers that can say what to do about it. What
// else a node says is not the answer of the quorum.
func (e *shortError) As(target any) bool {
	q, ok := target.(**ballot.QuarantineError)
	return ok && errors.As(errors.Join(e.errs...), q)
}
