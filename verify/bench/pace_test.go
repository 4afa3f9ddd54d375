package bench

import (
	"testing"
	"time"
)

func TestPaceIsToldInMilliseconds(t *testing.T) {
	var p pace
	about := map[string]string{}
	p.tell(about)
	if len(about) != 0 {
		t.Errorf("nothing was measured, and %v is told", about)
	}
	for i := range 10 {
		p.took = append(p.took, time.Duration(20-i)*time.Millisecond)
	}
	p.tell(about)
	if about["pace, quickest"] != "11" || about["pace, median"] != "16" || about["pace, slowest tenth"] != "20" {
		t.Errorf("of 11 to 20 ms, %v is told", about)
	}
	p.take()
	if took := p.took[len(p.took)-1]; took <= 0 || took > time.Minute {
		t.Errorf("the calculation took %v", took)
	}
}
