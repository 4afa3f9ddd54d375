package httplock_test

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/httplock"
)

// The requests of OpenTofu 1.12.6 are played as verify/tofu recorded them from the real one:
// two people, a lock that is refused and then waited for, kill -9 and force-unlock. To record
// them again: make tofu TOFU_RECORD=1.
func TestTerraformAsRecorded(t *testing.T) {
	const file = "testdata/opentofu-1.12.6.json"
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var made []struct {
		Method, Path, Body string
		Type               string `json:"content_type"`
		MD5                string `json:"content_md5"`
		Status             int
		Answer             json.RawMessage
	}
	if err := json.Unmarshal(raw, &made); err != nil || len(made) < 20 {
		t.Fatalf("%s has %d exchanges: %v", file, len(made), err)
	}
	inWorld(t, func(w *world) {
		s := w.terraform(t.TempDir(), httplock.Options{})
		for i, e := range made {
			r := httptest.NewRequest(e.Method, "http://localhost"+e.Path, strings.NewReader(e.Body))
			r.Header.Set("Content-Type", e.Type)
			r.Header.Set("Content-MD5", e.MD5)
			got := httptest.NewRecorder()
			s.ServeHTTP(got, r)
			if got.Code != e.Status {
				t.Fatalf("%d. %s %s %s: status %d, was %d: %s", i, e.Method, e.Path, e.Body, got.Code, e.Status, got.Body)
			}
			if want, have := meaning(e.Answer), meaning(got.Body.Bytes()); !bytes.Equal(want, have) {
				t.Errorf("%d. %s %s: %s, was %s", i, e.Method, e.Path, have, want)
			}
		}
	})
}

// meaning is an answer without what differs from run to run.
func meaning(raw []byte) []byte {
	v := map[string]any{}
	_ = json.Unmarshal(raw, &v) // an answer that is not JSON means nothing
	if info, ok := v["Info"].(string); ok {
		v["Info"], _, _ = strings.Cut(info, "fencing token ")
	}
	b, _ := json.Marshal(v)
	return b
}
