// Package modelchecking checks the models of this folder with Spin. README.md says what they
// are of, and how to read what Spin prints.
package modelchecking

import (
	"regexp"
	"testing"

	"github.com/fencelock/fencelock/verify/mutants"
)

// calmQuorum is the quorum with nothing but clients that vote.
var calmQuorum = safety("quorum.pml", "-DLOSSES=0", "-DFORGETS=0", "-DRENEWALS=0", "-DT=1")

// holds are the searches that must find nothing: the whole of what each bound allows.
var holds = []struct {
	name string
	search
}{
	{"line", safety("line.pml", "-DCLAIMS=2")},
	{"line, named", safety("line.pml", "-DCLAIMS=3", "-DNAMED", "-DKINDS=1", "-DBREAKS=0", "-DLINGER=0")},
	{"line, whoever waits is served",
		live("line.pml", "served", "-DCLAIMS=2", "-DLIVE=1", "-DKINDS=1", "-DBREAKS=0", "-DLINGER=0")},
	{"line, no ghost stays",
		live("line.pml", "ghosts", "-DCLAIMS=2", "-DLIVE=0", "-DKINDS=1", "-DBREAKS=0", "-DLINGER=0")},
	{"gate", safety("gate.pml", "-DG=2", "-DCALLS=1")},
	{"quorum, members that forget", safety("quorum.pml", "-DLOSSES=0", "-DRENEWALS=0", "-DT=1")},
	{"quorum, renewals", safety("quorum.pml", "-DLOSSES=0", "-DFORGETS=0")},
	{"quorum, lost messages", safety("quorum.pml", "-DFORGETS=0", "-DRENEWALS=0", "-DT=1")},
}

func TestModelsHold(t *testing.T) {
	for _, h := range holds {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			r := h.run(t)
			t.Log(r.size())
			if problem := r.problem(); problem != "" {
				t.Errorf("%s\n%s", problem, r.output)
			}
		})
	}
}

// What a violated property looks like in Spin's words.
const (
	oneHolder  = `holder==`      // one holder in the process, and none beside another process
	reserved   = `reserved`      // a holder's token is one that the store has reserved
	risesHere  = `>top`          // tokens rise from holder to holder
	allIsQuiet = `claim==.*n==0` // at the end nobody waits and nothing is left

	oneWriter    = `weight\+.*<=8` // one writer inside
	noGhost      = `\.over`        // what has left does not come back
	oneElected   = `j==p`          // one client of a quorum believes that it holds
	ballotsRise  = `n>top`         // and with a larger ballot than all before it
	tokensRise   = `\.tok>(highest|writer)`
	endsInTime   = `belief>0`         // no grant ends in the store under its holder
	neverGranted = `acceptance cycle` // somebody waits for ever
)

// faults are rules taken out of a model, as a macro. Each must be noticed, as a violation of
// the property, and mutant takes the same rule out of the Go code, where a test notices it.
var faults = []struct {
	macro, property, mutant string
	search
}{
	{"NO_TOMBSTONE", noGhost, "an ID whose Enter may still arrive leaves no tombstone",
		fewest("line.pml", "-DCLAIMS=2")},
	{"UNANSWERED_IS_NONE", noGhost, "an Enter without an answer is taken for none",
		fewest("line.pml", "-DCLAIMS=2")},
	{"TOKEN_REUSE", tokensRise, "tokens are the clock alone",
		fewest("line.pml", "-DCLAIMS=2")},
	{"COUNTED_FROM_ANSWER", endsInTime, "a lease is counted from the answer, not from the sending",
		fewest("line.pml", "-DCLAIMS=2")},
	{"OVERTAKE", tokensRise, "a claim that fits beside the holders overtakes those that wait",
		fewest("line.pml", "-DCLAIMS=3", "-DKINDS=2", "-DBREAKS=0", "-DLINGER=0")},
	{"RENEW_REVIVES", noGhost, "a renewal brings back what has expired",
		fewest("line.pml", "-DCLAIMS=2")},
	{"LATE_LEAVE", endsInTime, "a named claim that is lost leaves late",
		fewest("line.pml", "-DCLAIMS=3", "-DNAMED", "-DKINDS=1", "-DBREAKS=0", "-DLINGER=0")},
	{"SAME_TOKEN", risesHere, "a handed-on claim has the token of the one before",
		fewest("gate.pml", "-DG=2", "-DCALLS=1")},
	{"HANDOFF_AFTER_LOSS", oneHolder, "a claim that was lost is handed on",
		fewest("gate.pml", "-DG=2", "-DCALLS=1")},
	{"BEYOND_SPAN", reserved, "a claim is handed on beyond its span",
		fewest("gate.pml", "-DG=2", "-DCALLS=1")},
	{"RESERVE_UNANSWERED", reserved, "tokens are given whatever became of the request for them",
		fewest("gate.pml", "-DG=2", "-DCALLS=1")},
	{"LOSS_WAKES_NOBODY", allIsQuiet, "a loss wakes nobody in the local queue",
		fewest("gate.pml", "-DG=2", "-DCALLS=1")},
	{"CANCELLED_KEEPS", allIsQuiet, "a hand-off that crossed the end of its context is kept",
		fewest("gate.pml", "-DG=2", "-DCALLS=1")},
	{"FRONT_WAKES_NOBODY", allIsQuiet, "a front that gives up wakes nobody",
		fewest("gate.pml", "-DG=2", "-DCALLS=1")},
	{"HALF_IS_A_MAJORITY", ballotsRise, "quorum: half of the nodes are a majority", calmQuorum},
	{"BELOW_FLOOR", ballotsRise, "quorum: a member grants ballots below its floor", calmQuorum},
	{"LATE_MAJORITY", oneElected, "quorum: the answers of a late majority count", calmQuorum},
	{"LEAVE_OVERTAKEN", noGhost, "quorum: a Leave overtakes the Enter that is under way on its node",
		safety("quorum.pml", "-DLOSSES=0", "-DFORGETS=0", "-DRENEWALS=0", "-DT=1", "-DVOTES=2")},
	{"NO_QUARANTINE", ballotsRise, "quorum: a member that lost its data grants at once",
		safety("quorum.pml", "-DLOSSES=0", "-DRENEWALS=0", "-DT=1")},
	{"MINORITY_RENEWS", oneElected, "quorum: one node keeps a claim alive",
		safety("quorum.pml", "-DLOSSES=0")},
	{"NO_TOMBSTONE", noGhost, "an ID whose Enter may still arrive leaves no tombstone",
		safety("quorum.pml", "-DFORGETS=0", "-DRENEWALS=0", "-DT=1")},
	{"WAKES_NOBODY", neverGranted, "what expires lets nobody in",
		live("line.pml", "served", "-DCLAIMS=2", "-DLIVE=0", "-DKINDS=1", "-DBREAKS=0", "-DLINGER=0")},
}

func TestEveryFaultIsFound(t *testing.T) {
	known := map[string]bool{}
	for _, m := range mutants.All() {
		known[m.Name] = true
	}
	for _, f := range faults {
		t.Run(f.model+" "+f.macro, func(t *testing.T) {
			t.Parallel()
			if !known[f.mutant] {
				t.Errorf("verify/mutants has no %q", f.mutant)
			}
			f.defines = append([]string{"-DFAULT_" + f.macro}, f.defines...)
			r := f.run(t)
			found := finding.FindStringSubmatch(r.output)
			switch {
			case found == nil:
				t.Errorf("nothing was found\n%s", r.output)
			case !regexp.MustCompile(f.property).MatchString(found[1]):
				t.Errorf("found %q; want %q", found[1], f.property)
			default:
				t.Logf("%s; %s", found[1], r.size())
			}
		})
	}
}

// idle are the lines of the models that no search comes to, and why.
var idle = map[string]string{}

// reaching are small searches that together come to every line.
var reaching = []search{
	safety("line.pml", "-DCLAIMS=2"),
	safety("line.pml", "-DCLAIMS=2", "-DNAMED", "-DKINDS=1", "-DBREAKS=0", "-DLINGER=0"),
	live("line.pml", "served", "-DCLAIMS=2", "-DLIVE=1", "-DKINDS=1", "-DBREAKS=0", "-DLINGER=0"),
	safety("gate.pml", "-DG=2", "-DCALLS=1"),
	safety("quorum.pml", "-DP=1"),
	safety("quorum.pml", "-DP=1", "-DVOTES=2", "-DT=1"),
	calmQuorum,
}

// TestEveryLineIsReached: what a search never comes to, it has not checked.
func TestEveryLineIsReached(t *testing.T) {
	t.Parallel()
	c := reach{}
	for _, s := range reaching {
		c.cover(t, s)
	}
	for line, reached := range c {
		if !reached && idle[line] == "" {
			t.Errorf("no search comes to %s", line)
		}
	}
}
