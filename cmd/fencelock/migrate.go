package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/internal/terminal"
	"github.com/fencelock/fencelock/storeurl"
)

// migration is one run of migrate.
type migration struct {
	from, to, prefix string
	watch            seconds // how long to look
	wait             seconds // how long to look again while the next step is refused
	goal             string  // the phase that is to be deployed, or ""
}

const migrateHelp = `migrate shows which programs use which store while you move from one to another, and
what may be deployed next. A fleet moves in three deployments, and back in the same
ones from right to left:

  old   programs with the URL of the old store
  both  programs with bridge:OLD,NEW
  new   programs with the URL of the new store

Programs of two that follow each other exclude one another. Programs of old and new do
not, and must never run at once.

Without a phase, migrate shows what it sees. With old, both or new it exits 0 if programs
of that phase may be deployed now, and 75 if they may not: programs of old and of new are
seen, or would be. With -w it looks again until they may. It never deploys anything.

It sees programs that hold a name or wait for one at some moment of --for. A program that does
neither is not seen: give --for the time in which every program takes a lock, and check
with your deployment tool that none of the earlier phase is left.`

func newMigrate(c *cli) *cobra.Command {
	m := &migration{watch: seconds{d: 3 * time.Second}}
	cmd := &cobra.Command{
		Use:        "migrate [old|both|new]",
		SuggestFor: []string{"bridge", "move"},
		Short:      "Show who uses which store while you move, and whether you may go on",
		Long:       migrateHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && !slices.Contains([]string{"old", "both", "new"}, args[0]) {
				return usage("want at most one phase: old, both or new")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			m.goal = first(args)
			return c.migrate(m)
		},
	}
	p := cmd.Flags()
	p.StringVar(&m.from, "from", "", "the store that programs move from")
	p.StringVar(&m.to, "to", "", "the store that programs move to")
	p.StringVar(&m.prefix, "prefix", "", "look at names that begin with this only")
	p.Var(&m.watch, "for", "how long to look")
	p.VarP(&m.wait, "wait", "w", "wait at most this long until the phase may be deployed (default: do not wait)")
	c.outputFlag(cmd)
	return cmd
}

func (c *cli) migrate(m *migration) error {
	asJSON, err := c.json()
	switch {
	case err != nil:
		return err
	case m.from == "" || m.to == "":
		return usage("name both stores: --from URL --to URL")
	case m.wait.set && m.goal == "":
		return usage("-w waits until a phase may be deployed; say which: old, both or new")
	}
	ctx := context.Background()
	stores, err := c.twoStores(m)
	if err != nil {
		return err
	}
	var open [2]*storeurl.Store
	for i, s := range stores {
		if open[i], err = s.connect(ctx, "", firstContact); err != nil {
			return err
		}
		defer closeSoon(open[i].Close)
	}
	for end := time.Now().Add(m.wait.d); ; {
		v, err := m.look(ctx, open[0], open[1])
		if err != nil {
			return err
		}
		refused := v.refuses(m.goal)
		if refused != nil && time.Now().Before(end) {
			continue
		}
		if asJSON {
			err = writeJSON(c.out, v, true)
		} else {
			err = v.show(c.out)
		}
		return cmp.Or(err, refused)
	}
}

// twoStores are the stores of --from and --to, if there is a bridge between them.
func (c *cli) twoStores(m *migration) (stores [2]*store, err error) {
	for i, raw := range []string{m.from, m.to} {
		if u, err := url.Parse(raw); err == nil && u.Query().Has("format") {
			return stores, usage("migrate does not see programs of another library (%s): before you deploy the "+
				"new store, check with your deployment tool that none is left", u.Query().Get("format"))
		}
		if stores[i], err = c.storeAt(raw, []string{"--from", "--to"}[i]); err != nil {
			return stores, err
		}
	}
	both := storeurl.Source{Name: "--from and --to", TLS: storeurl.Environment("").TLS}
	if _, err := storeurl.Parse("bridge:"+m.from+","+m.to, both); err != nil {
		return stores, usage("%s", err)
	}
	return stores, nil
}

// storeAt is the store of a URL that a flag names.
func (c *cli) storeAt(raw, flag string) (*store, error) {
	from := storeurl.Source{Name: flag, Visible: true, TLS: storeurl.Environment("").TLS}
	var err error
	if from.Password, err = c.password(configFile{}); err != nil {
		return nil, err
	}
	u, err := storeurl.Parse(raw, from)
	if err != nil {
		return nil, usage("%s", err)
	}
	if u.Private() {
		return nil, usage("%s: no other process sees the store %s", flag, u)
	}
	return &store{URL: u, source: flag}, nil
}

// moveView holds the output of migrate.
type moveView struct {
	Stage    string        `json:"stage"` // none, old, old+both, both, both+new, new, or unsafe
	Programs []programView `json:"programs"`
	Crash    string        `json:"crash"` // what a crash now means
	Next     string        `json:"next"`
}

// programView is one program, as its owner tells.
type programView struct {
	Phase string `json:"phase"`
	Owner string `json:"owner"`
	Holds int    `json:"holds"` // names, at some moment
	Waits int    `json:"waits"`
	Key   string `json:"key"` // one of the names
}

// look watches both stores for a while.
func (m *migration) look(ctx context.Context, old, new *storeurl.Store) (*moveView, error) {
	type claim struct {
		bridge.Seen
		waits bool
	}
	seen := map[claim]bool{}
	for end := time.Now().Add(m.watch.d); ; time.Sleep(min(lookEvery, max(time.Until(end), 0))) {
		all, err := bridge.Survey(ctx, old.Backend, new.Backend, m.prefix)
		if err != nil {
			return nil, fail(exitUnavailable, "migrate cannot read the locks: %s", cause(err))
		}
		for _, s := range all {
			waits := s.Waits
			s.Waits = false
			seen[claim{s, waits}] = true
		}
		if !time.Now().Before(end) {
			break
		}
	}
	programs := map[[2]string]programView{}
	phases := map[bridge.Phase]bool{}
	for c := range seen {
		id := [2]string{c.Phase.String(), c.Owner}
		p := programs[id]
		p.Phase, p.Owner = id[0], id[1]
		if p.Key == "" || c.Key < p.Key {
			p.Key = c.Key
		}
		if c.waits {
			p.Waits++
		} else {
			p.Holds++
		}
		programs[id], phases[c.Phase] = p, true
	}
	v := stageOf(phases)
	v.Programs = slices.SortedFunc(maps.Values(programs), func(a, b programView) int {
		return cmp.Or(cmp.Compare(order(a.Phase), order(b.Phase)), strings.Compare(a.Owner, b.Owner))
	})
	return v, nil
}

// order is the place of a phase on the way.
func order(phase string) int { return slices.Index([]string{"old", "both", "new"}, phase) }

// stages are how far a fleet is, by the phases that are seen.
var stages = map[string]moveView{
	"none": {
		Crash: "no program holds or waits, so none would leave anything",
		Next:  "nothing is known; look longer with --for",
	},
	"old": {
		Crash: "a program that crashes leaves its lease in the old store; the next one gets the name when it ends",
		Next:  "deploy both",
	},
	"old+both": {
		Crash: "a program of both that crashes leaves a lease in each store; the next one gets the name when both " +
			"have ended. If the new store is lost, programs of both lose their locks and get none; those of old go on",
		Next: "forward: finish the deployment of both; back: deploy old",
	},
	"both": {
		Crash: "a program that crashes leaves a lease in each store; the next one gets the name when both have " +
			"ended. If either store is lost, programs lose their locks and get none until it is back",
		Next: "forward: deploy new; back: deploy old",
	},
	"both+new": {
		Crash: "a program of both that crashes leaves a lease in each store; the next one gets the name when both " +
			"have ended. If the old store is lost, programs of both lose their locks and get none; those of new go on",
		Next: "forward: finish the deployment of new; back: deploy both",
	},
	"new": {
		Crash: "a program that crashes leaves its lease in the new store; the next one gets the name when it ends. " +
			"The old store holds nothing",
		Next: "forward: turn the old store off; back: deploy both",
	},
	"unsafe": {
		Crash: "programs of old and of new run at once and do not exclude one another, with or without a crash",
		Next:  "stop the programs of old, or those of new, now",
	},
}

func stageOf(seen map[bridge.Phase]bool) *moveView {
	var parts []string
	for _, p := range []bridge.Phase{bridge.OldOnly, bridge.Both, bridge.NewOnly} {
		if seen[p] {
			parts = append(parts, p.String())
		}
	}
	stage := cmp.Or(strings.Join(parts, "+"), "none")
	if seen[bridge.OldOnly] && seen[bridge.NewOnly] {
		stage = "unsafe"
	}
	v := stages[stage]
	v.Stage = stage
	return &v
}

// refuses says why programs of the phase goal may not be deployed, or returns nil.
func (v *moveView) refuses(goal string) error {
	var inTheWay []string
	for _, p := range v.Programs {
		if (goal == "new" || v.Stage == "unsafe") && p.Phase == "old" || goal == "old" && p.Phase == "new" {
			inTheWay = append(inTheWay, fmt.Sprintf("%s (%s)", plain(cmp.Or(p.Owner, "no owner")), p.Phase))
		}
	}
	switch {
	case len(inTheWay) == 0:
		return nil
	case v.Stage == "unsafe":
		return fail(exitNotAcquired, "programs of old and of new run at once and do not exclude one another: %s; %s",
			strings.Join(inTheWay, ", "), v.Next)
	}
	return fail(exitNotAcquired, "do not deploy %s yet: %s holds or waits, and would not be excluded; wait with -w",
		goal, strings.Join(inTheWay, ", "))
}

func (v *moveView) show(out *terminal.Output) error {
	rows := [][]string{{"PHASE", "OWNER", "HOLDS", "WAITS", "NAME"}}
	for _, p := range v.Programs {
		rows = append(rows, []string{p.Phase, plain(p.Owner), fmt.Sprint(p.Holds), fmt.Sprint(p.Waits), plain(p.Key)})
	}
	if len(v.Programs) > 0 {
		if err := terminal.Table(out, rows, nil); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "stage: %s\na crash now: %s\nnext: %s\n", v.Stage, v.Crash, v.Next)
	return err
}
