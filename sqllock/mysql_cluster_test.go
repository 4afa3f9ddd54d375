package sqllock

import "testing"

func TestSeveralWritersAreSeenInTheVariables(t *testing.T) {
	for _, c := range []struct {
		read    map[string]string
		several bool
	}{
		{map[string]string{}, false},
		{map[string]string{"wsrep_on": "OFF", "wsrep_provider": "none"}, false},
		{map[string]string{"wsrep_on": "ON", "wsrep_provider": "none"}, false},
		{map[string]string{"wsrep_on": "ON", "wsrep_provider": "/usr/lib/galera/libgalera_smm.so"}, true},
		{map[string]string{"group_replication_group_name": "", "group_replication_single_primary_mode": "OFF"}, false},
		{map[string]string{"group_replication_group_name": "a", "group_replication_single_primary_mode": "ON"}, false},
		{map[string]string{"group_replication_group_name": "a", "group_replication_single_primary_mode": "OFF"}, true},
	} {
		if got := severalWriters(c.read); (got != "") != c.several {
			t.Errorf("%v: %q; want several writers: %v", c.read, got, c.several)
		}
	}
}
