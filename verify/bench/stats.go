package bench

import (
	"math"
	"slices"
	"time"
)

// jain is Jain's fairness index of what each got: 1 if all got the same, 1/n if
// one got everything. Of nothing at all it is 0.
func jain(got []int64) float64 {
	var sum, squares float64
	for _, x := range got {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(got)) * squares)
}

// percentile returns the smallest of the sorted values that p percent of them do
// not exceed. Of no values it is NaN.
func percentile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return float64(sorted[min(max(rank, 1), len(sorted))-1])
}

// median returns the middle of xs, or the mean of the two in the middle. Values
// that are not a number are left out; of nothing it is NaN.
func median(xs []float64) float64 {
	xs = slices.DeleteFunc(slices.Clone(xs), math.IsNaN)
	slices.Sort(xs)
	n := len(xs)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return xs[n/2]
	}
	return (xs[n/2-1] + xs[n/2]) / 2
}
