package sqllock

import "testing"

const mountinfo = `22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
28 27 0:25 / /srv rw,relatime shared:2 master:3 - nfs4 filer:/export rw,vers=4.2
29 28 254:1 / /srv/local rw - xfs /dev/vdb rw
30 27 0:26 / /mnt/two\040words rw - cifs //filer/share rw
31 27 254:3 / /over rw - ext4 /dev/vdc rw
32 31 0:30 / /over rw - fuse.sshfs host: rw
33 27 254:4 /locks.db /etc/locks.db rw - fuse.own own rw
a line that makes no sense
`

func TestFileSystemOfAPath(t *testing.T) {
	for path, want := range map[string]string{
		"/var/lib/locks.db":       "ext4",
		"/srv/locks.db":           "nfs4",
		"/srv/local/locks.db":     "xfs",
		"/srv/locally/locks.db":   "nfs4",
		"/srvs/locks.db":          "ext4",
		"/mnt/two words/locks.db": "cifs",
		"/over/locks.db":          "fuse.sshfs",
		"/etc/locks.db":           "fuse.own",
		"relative":                "",
	} {
		if got := mountedAs(mountinfo, path); got != want {
			t.Errorf("%s is on %q, want %q", path, got, want)
		}
	}
}

// There is no network file system to put a file on, so this is what its kind would be found to
// be.
func TestNetworkFileSystemIsAnError(t *testing.T) {
	for kind, want := range map[string]string{
		"nfs4": "error", "cifs": "error", "9p": "error", "fuse.sshfs": "error", "fuse.own": "warning", "fuseblk": "warning",
		"ext4": "", "xfs": "", "btrfs": "", "tmpfs": "", "overlay": "", "": "",
	} {
		e := &examination{}
		e.sqliteFileSystem(kind)
		got := ""
		for _, f := range e.Findings {
			got += f.Severity.String()
			if f.Code != "sqlite-network" || f.Value != kind {
				t.Errorf("%s: %+v", kind, f)
			}
		}
		if got != want {
			t.Errorf("%s is %q, want %q", kind, got, want)
		}
	}
}
