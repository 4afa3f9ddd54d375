package history

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"
)

// events makes a history of any bytes, four for each event.
func events(b []byte) []Event {
	var es []Event
	at := time.Duration(0)
	for len(b) >= 4 {
		at += time.Duration(b[0]>>4) * 100 * time.Millisecond
		e := Event{
			At: at, Op: ops[min(int(b[0]&15), len(ops)-1)], Process: fmt.Sprint("p", b[1]&1), Key: fmt.Sprint("k", b[1]>>1&1), Claim: fmt.Sprint("c", b[1]>>2&15),
			Handle: fmt.Sprint(b[1] >> 6), Kind: Kind(b[2] & 3), Weight: int64(int8(b[2]) >> 2), Size: int64(b[3] & 7), Token: int64(b[3] >> 3),
		}
		es = append(es, e)
		b = b[4:]
	}
	return es
}

// FuzzCheck: whatever a history holds, it is judged, or said to make no sense; and the
// same one is judged in the same way.
func FuzzCheck(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0x11, 0, 0, 8, 0x13, 0, 0, 8, 0x11, 4, 0, 8, 0x13, 4, 0, 8, 0x15, 0, 0, 8, 0x16, 0, 0, 8})
	f.Add([]byte{0x11, 0, 2, 11, 0x13, 0, 2, 11, 0x11, 5, 2, 11, 0x13, 5, 2, 11, 0x18, 0, 0, 0, 0xfd, 0, 0, 0})
	f.Add([]byte{0x11, 0, 0, 8, 0x19, 0, 0, 0, 0x13, 0, 0, 8, 0x1a, 0, 0, 0, 0x1b, 0, 0, 8, 0x17, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	o := Options{Stuck: time.Second, Wake: 100 * time.Millisecond}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4096 {
			return
		}
		es := events(b)
		before := slices.Clone(es)
		found, err := Check(es, o)
		if !slices.Equal(es, before) {
			t.Error("the history was changed")
		}
		again, err2 := Check(es, o)
		if (err == nil) != (err2 == nil) || !reflect.DeepEqual(found, again) {
			t.Errorf("judged as %v, %v, and then as %v, %v", found, err, again, err2)
		}
		for _, v := range found {
			if v.String() == "" || !slices.Contains(All(), v.Rule) {
				t.Errorf("a breach of no rule: %+v", v)
			}
		}
	})
}
