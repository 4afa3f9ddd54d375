package bench

import (
	"math"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
)

func TestJainIsOneWhenAllGetTheSame(t *testing.T) {
	for _, tt := range []struct {
		name string
		got  []int64
		want float64
	}{
		{"all the same", []int64{7, 7, 7, 7}, 1},
		{"one gets everything", []int64{12, 0, 0, 0}, 0.25},
		{"half get everything", []int64{3, 3, 0, 0}, 0.5},
		{"two to one", []int64{2, 1}, 0.9},
		{"alone", []int64{5}, 1},
		{"nobody gets anything", []int64{0, 0}, 0},
		{"nobody is there", nil, 0},
	} {
		if got := jain(tt.got); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("%s: jain(%v) = %v, want %v", tt.name, tt.got, got, tt.want)
		}
	}
}

func TestPercentileIsAValueThatWasMeasured(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, tt := range []struct {
		sorted  []time.Duration
		p, want float64
	}{
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 99.5, 100},
		{hundred, 100, 100},
		{hundred, 0, 1},
		{[]time.Duration{3}, 50, 3},
		{[]time.Duration{3}, 99, 3},
		{[]time.Duration{3, 9}, 50, 3},
		{[]time.Duration{3, 9}, 51, 9},
	} {
		if got := percentile(tt.sorted, tt.p); got != tt.want {
			t.Errorf("percentile of %d values at %v = %v, want %v", len(tt.sorted), tt.p, got, tt.want)
		}
	}
	if got := percentile(nil, 50); !math.IsNaN(got) {
		t.Errorf("percentile of nothing = %v, want NaN", got)
	}
}

func TestMedianIsTheMiddle(t *testing.T) {
	for _, tt := range []struct {
		xs   []float64
		want float64
	}{
		{[]float64{5, 1, 3}, 3},
		{[]float64{4, 1, 3, 2}, 2.5},
		{[]float64{9}, 9},
	} {
		before := append([]float64(nil), tt.xs...)
		if got := median(tt.xs); got != tt.want {
			t.Errorf("median(%v) = %v, want %v", tt.xs, got, tt.want)
		}
		if tt.xs[0] != before[0] {
			t.Errorf("median changed its argument to %v", tt.xs)
		}
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing = %v, want NaN", got)
	}
}

func TestRatioIsTakenWithinEachRound(t *testing.T) {
	// The machine is ten times slower in the second round, for both.
	table := results{
		{Peer: "a", Round: 0, Values: Values{"rate": 20}}, {Peer: "b", Round: 0, Values: Values{"rate": 10}},
		{Peer: "a", Round: 1, Values: Values{"rate": 2}}, {Peer: "b", Round: 1, Values: Values{"rate": 1}},
		{Peer: "a", Round: 2, Values: Values{"rate": 30}}, {Peer: "b", Round: 2, Values: Values{"rate": 10}},
	}
	steps.Same(t, "the ratio", table.ratio("a", "b", "rate"), 2)
	steps.Same(t, "the median", table.value("a", "rate"), 20)
	if got := table.ratio("a", "nobody", "rate"); !math.IsNaN(got) {
		t.Errorf("the ratio to nobody is %v, want NaN", got)
	}
}
