// Package modelchecking checks the models of this folder with Spin. README.md says what they
// are of, and how to read what Spin prints.
package modelchecking

import (
	"flag"
	"regexp"
	"slices"
	"testing"

	"github.com/fencelock/fencelock/verify/mutants"
)

// calmQuorum is the quorum with nothing but clients that vote.
var calmQuorum = safety("quorum.pml", "-DLOSSES=0", "-DFORGETS=0", "-DRENEWALS=0", "-DT=1")

// What most faults of a line and of a gate are found in.
var twoClaims, twoCalls = fewest("line.pml", "-DCLAIMS=2", "-DKINDS=1"), fewest("gate.pml", "-DG=2", "-DCALLS=1")

var large = flag.Bool("large", false, "add the searches that take minutes")

// hold is a search that must find nothing.
type hold struct {
	name string
	search
}

// largest are the searches that only -large adds.
var largest = []hold{
	{"line, three claims", deep(safety("line.pml", "-DCLAIMS=3", "-DKINDS=1", "-DBREAKS=0", "-DLINGER=0"))},
	{"line", safety("line.pml", "-DCLAIMS=2")},
	{"line, three named claims", safety("line.pml", "-DCLAIMS=3", "-DNAMED", "-DKINDS=1", "-DBREAKS=0", "-DLINGER=0")},
	{"quorum, renewals in two ticks", safety("quorum.pml", "-DLOSSES=0", "-DFORGETS=0")},
}

// holds are the whole of what each bound allows, the longest searches first.
var holds = []hold{
	{"quorum, lost messages", safety("quorum.pml", "-DFORGETS=0", "-DRENEWALS=0", "-DT=1")},
	{"quorum, members that forget", safety("quorum.pml", "-DLOSSES=0", "-DRENEWALS=0", "-DT=1")},
	{"line, readers and tries", safety("line.pml", "-DCLAIMS=2", "-DBREAKS=0")},
	{"line, breaks", safety("line.pml", "-DCLAIMS=2", "-DKINDS=1")},
	{"line, whoever waits is served",
		live("line.pml", "served", "-DCLAIMS=2", "-DLIVE=1", "-DKINDS=1", "-DBREAKS=0", "-DLINGER=0")},
	{"line, no ghost stays",
		live("line.pml", "ghosts", "-DCLAIMS=2", "-DLIVE=0", "-DKINDS=1", "-DBREAKS=0", "-DLINGER=0")},
	{"line, named", safety("line.pml", "-DCLAIMS=2", "-DNAMED", "-DKINDS=1", "-DBREAKS=0", "-DLINGER=0")},
	{"quorum, renewals", safety("quorum.pml", "-DLOSSES=0", "-DFORGETS=0", "-DT=1")},
	{"gate", safety("gate.pml", "-DG=2", "-DCALLS=1")},
}

func TestModelsHold(t *testing.T) {
	t.Parallel()
	all := holds
	if *large {
		all = slices.Concat(largest, holds)
	}
	for _, h := range all {
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
	neverGranted = `acceptance cycle` // somebody waits forever
)

// faults are rules taken out of a model, as a macro. Each must be noticed, as a violation of
// the property, and mutant takes the same rule out of the Go code, where a test notices it.
var faults = []struct {
	macro, property, mutant string
	search
}{
	{"NO_TOMBSTONE", noGhost, "an ID whose Enter may still arrive leaves no tombstone", twoClaims},
	{"UNANSWERED_IS_NONE", noGhost, "an Enter without an answer is taken for none", twoClaims},
	{"TOKEN_REUSE", tokensRise, "tokens are the clock alone", twoClaims},
	{"COUNTED_FROM_ANSWER", endsInTime, "a lease is counted from the answer, not from the sending", twoClaims},
	{"OVERTAKE", tokensRise, "a claim that fits beside the holders overtakes those that wait",
		fewest("line.pml", "-DCLAIMS=3", "-DKINDS=2", "-DBREAKS=0", "-DLINGER=0")},
	{"RENEW_REVIVES", noGhost, "a renewal brings back what has expired", twoClaims},
	{"LATE_LEAVE", endsInTime, "a named claim that is lost leaves late",
		fewest("line.pml", "-DCLAIMS=3", "-DNAMED", "-DKINDS=1", "-DBREAKS=0", "-DLINGER=0")},
	{"SAME_TOKEN", risesHere, "a handed-on claim has the token of the one before", twoCalls},
	{"HANDOFF_AFTER_LOSS", oneHolder, "a claim that was lost is handed on", twoCalls},
	{"BEYOND_SPAN", reserved, "a claim is handed on beyond its span", twoCalls},
	{"RESERVE_UNANSWERED", reserved, "tokens are given whatever became of the request for them", twoCalls},
	{"LOSS_WAKES_NOBODY", allIsQuiet, "a loss wakes nobody in the local queue", twoCalls},
	{"CANCELLED_KEEPS", allIsQuiet, "a hand-off that crossed the end of its context is kept",
		safety("gate.pml", "-DG=2", "-DCALLS=1")},
	{"FRONT_WAKES_NOBODY", allIsQuiet, "a front that gives up wakes nobody", twoCalls},
	{"HALF_IS_A_MAJORITY", ballotsRise, "quorum: half of the nodes are a majority", calmQuorum},
	{"BELOW_FLOOR", ballotsRise, "quorum: a member grants ballots below its floor", calmQuorum},
	{"LATE_MAJORITY", oneElected, "quorum: the answers of a late majority count", calmQuorum},
	{"LEAVE_OVERTAKEN", noGhost, "quorum: a Leave overtakes the Enter that is under way on its node",
		safety("quorum.pml", "-DLOSSES=0", "-DFORGETS=0", "-DRENEWALS=0", "-DT=1", "-DVOTES=2")},
	{"NO_QUARANTINE", ballotsRise, "quorum: a member that lost its data grants at once",
		backwards(safety("quorum.pml", "-DLOSSES=0", "-DRENEWALS=0", "-DT=1"))},
	{"MINORITY_RENEWS", oneElected, "quorum: one node keeps a claim alive",
		backwards(safety("quorum.pml", "-DLOSSES=0", "-DFORGETS=0"))},
	{"NO_TOMBSTONE", noGhost, "an ID whose Enter may still arrive leaves no tombstone",
		safety("quorum.pml", "-DFORGETS=0", "-DRENEWALS=0", "-DT=1")},
	{"WAKES_NOBODY", neverGranted, "what expires lets nobody in",
		live("line.pml", "served", "-DCLAIMS=2", "-DLIVE=0", "-DKINDS=1", "-DBREAKS=0", "-DLINGER=0")},
}

func TestEveryFaultIsFound(t *testing.T) {
	t.Parallel()
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

// reaching are small searches that together come to every line.
var reaching = []search{
	safety("line.pml", "-DCLAIMS=2", "-DKINDS=1"),
	safety("line.pml", "-DCLAIMS=2", "-DBREAKS=0", "-DLINGER=0"),
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
	c := reach{lines: map[string]bool{}}
	t.Run("searches", func(t *testing.T) {
		for _, s := range reaching {
			t.Run(s.model, func(t *testing.T) {
				t.Parallel()
				c.cover(t, s)
			})
		}
	})
	for line, reached := range c.lines {
		if !reached {
			t.Errorf("no search comes to %s", line)
		}
	}
}

// TestNoStepHidesAChoice: of several choices inside a d_step Spin tries the first one only.
func TestNoStepHidesAChoice(t *testing.T) {
	t.Parallel()
	for _, s := range []search{
		safety("line.pml", "-DCLAIMS=1"),
		safety("gate.pml", "-DG=1", "-DCALLS=1"),
		safety("quorum.pml", "-DP=1", "-DT=1"),
	} {
		t.Run(s.model, func(t *testing.T) {
			t.Parallel()
			s.options = append(slices.Clone(s.options), "-O0")
			all := s
			all.defines = append(slices.Clone(s.defines), "-Dd_step=atomic")
			if one, each := s.run(t).states(), all.run(t).states(); one == "" || one != each {
				t.Errorf("%s states with d_step, %s without", one, each)
			}
		})
	}
}
