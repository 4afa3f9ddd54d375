package model

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
)

const limit = 10 * time.Second

func x(do Do, claim int, token, call, ret int64) Op {
	return Op{Do: do, Claim: claim, Weight: RW, Capacity: RW, Token: token, Call: call, Return: ret}
}

func weigh(o Op, weight, capacity int64) Op {
	o.Weight, o.Capacity = weight, capacity
	return o
}

func covered(o Op) Op {
	o.Covered = true
	return o
}

// Each pair differs by one thing, and that is what makes the first one illegal.
func TestEachRuleOfTheModel(t *testing.T) {
	for _, c := range []struct {
		name         string
		broken, fine []Op
	}{
		{
			"a mutex has one owner",
			[]Op{x(Acquire, 1, 1, 0, 1), x(Acquire, 2, 2, 2, 3), x(Release, 1, 1, 4, 5), x(Release, 2, 2, 4, 5)},
			[]Op{x(Acquire, 1, 1, 0, 1), x(Acquire, 2, 2, 2, 4), x(Release, 1, 1, 3, 5), x(Release, 2, 2, 4, 5)},
		},
		{
			"an owner that is lost held it until it was last seen to",
			[]Op{x(Acquire, 1, 1, 0, 1), x(End, 1, 0, 4, Never), x(Acquire, 2, 2, 2, 3)},
			[]Op{x(Acquire, 1, 1, 0, 1), x(End, 1, 0, 3, Never), x(Acquire, 2, 2, 2, 3)},
		},
		{
			"tokens rise",
			[]Op{x(Acquire, 1, 5, 0, 1), x(Release, 1, 5, 2, 3), x(Acquire, 2, 5, 4, 5)},
			[]Op{x(Acquire, 1, 5, 0, 1), x(Release, 1, 5, 2, 3), x(Acquire, 2, 6, 4, 5)},
		},
		{
			"tokens rise also where only one order of concurrent calls is possible",
			[]Op{x(Acquire, 1, 2, 0, 9), x(Release, 1, 2, 10, 11), x(Acquire, 2, 1, 0, 9), x(Release, 2, 1, 12, 13), x(Acquire, 3, 3, 14, 15)},
			[]Op{x(Acquire, 1, 1, 0, 9), x(Release, 1, 1, 5, 11), x(Acquire, 2, 2, 0, 9), x(Release, 2, 2, 12, 13), x(Acquire, 3, 3, 14, 15)},
		},
		{
			"what is free is not refused",
			[]Op{x(Acquire, 1, 1, 0, 1), x(Release, 1, 1, 2, 3), x(Refuse, 2, 0, 4, 5)},
			[]Op{x(Acquire, 1, 1, 0, 1), x(Release, 1, 1, 2, 4), x(Refuse, 2, 0, 4, 5)},
		},
		{
			"unless somebody may be in the way",
			[]Op{x(Refuse, 2, 0, 4, 5)},
			[]Op{covered(x(Refuse, 2, 0, 4, 5))},
		},
		{
			"what is released was held",
			[]Op{x(Acquire, 1, 1, 0, 1), x(End, 1, 0, 1, 2), x(Release, 1, 1, 3, 4)},
			[]Op{x(Acquire, 1, 1, 0, 1), x(Release, 1, 1, 3, 4)},
		},
		{
			"permits fit the size",
			[]Op{weigh(x(Acquire, 1, 0, 0, 1), 2, 3), weigh(x(Acquire, 2, 0, 2, 3), 2, 3), weigh(x(End, 1, 0, 4, Never), 2, 3)},
			[]Op{weigh(x(Acquire, 1, 0, 0, 1), 2, 3), weigh(x(Acquire, 2, 0, 2, 3), 1, 3), weigh(x(End, 1, 0, 4, Never), 2, 3)},
		},
		{
			"two handles need two releases",
			[]Op{x(Acquire, 1, 1, 0, 1), x(Reenter, 1, 1, 2, 3), x(Release, 1, 1, 4, 5), x(Acquire, 2, 2, 6, 7), x(Release, 1, 1, 8, 9)},
			[]Op{x(Acquire, 1, 1, 0, 1), x(Reenter, 1, 1, 2, 3), x(Release, 1, 1, 4, 5), x(Release, 1, 1, 8, 9), x(Acquire, 2, 2, 10, 11)},
		},
		{
			"a re-entry has the token of its grant",
			[]Op{x(Acquire, 1, 1, 0, 1), x(Reenter, 1, 2, 2, 3)},
			[]Op{x(Acquire, 1, 1, 0, 1), x(Reenter, 1, 1, 2, 3)},
		},
		{
			"a claim is granted once",
			[]Op{weigh(x(Acquire, 1, 0, 0, 1), 1, RW), weigh(x(Acquire, 1, 0, 2, 3), 1, RW)},
			[]Op{weigh(x(Acquire, 1, 0, 0, 1), 1, RW), weigh(x(Acquire, 2, 0, 2, 3), 1, RW)},
		},
		{
			"a re-entry needs a grant",
			[]Op{x(Acquire, 1, 1, 0, 1), x(Release, 1, 1, 2, 3), x(Reenter, 1, 1, 4, 5)},
			[]Op{x(Acquire, 1, 1, 0, 1), x(Release, 1, 1, 2, 5), x(Reenter, 1, 1, 4, 5), x(Release, 1, 1, 6, 7)},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			steps.Same(t, "what breaks it", Check(c.broken, limit), Illegal)
			steps.Same(t, "what keeps it", Check(c.fine, limit), Legal)
		})
	}
}

func TestATimeoutIsSaid(t *testing.T) {
	// Readers in any order, and a writer that cannot come: everything is tried.
	var ops []Op
	for i := range 24 {
		ops = append(ops, weigh(x(Acquire, i, 0, 0, 100), 1, RW), weigh(x(End, i, 0, 0, Never), 1, RW))
	}
	ops = append(ops, x(Release, 99, 1, 200, 201))
	steps.Same(t, "a search that does not end", Check(ops, 50*time.Millisecond), TimedOut)
}
