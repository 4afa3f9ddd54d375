package sqllock

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/driver/health"
)

func examineSQLite(ctx context.Context, e *examination) error {
	var journal, path string
	var synchronous int
	for query, to := range map[string]any{
		"PRAGMA journal_mode": &journal, "PRAGMA synchronous": &synchronous,
		"SELECT file FROM pragma_database_list WHERE name = 'main'": &path,
	} {
		if err := e.db.QueryRowContext(ctx, query).Scan(to); err != nil {
			return err
		}
	}
	if host, err := os.Hostname(); err == nil {
		e.Hosts = []string{host}
	}
	if path != "" { // else it is in memory, and ends with the process
		e.sqliteJournal(journal, synchronous)
		e.sqliteFileSystem(fileSystem(path))
	}
	return nil
}

func (e *examination) sqliteJournal(journal string, synchronous int) {
	none := journal == "off" || journal == "memory"
	e.add(none, health.Error, "sqlite-journal", "journal_mode", journal,
		"A process that is killed in the middle of a step leaves a damaged file, and all locks in it are refused.",
		"PRAGMA journal_mode = WAL; see SQLiteDSN")
	e.add(!none && journal != "wal", health.Note, "sqlite-journal", "journal_mode", journal,
		"Locks are correct with it. Each step writes, syncs and deletes a journal, where WAL appends to one file.",
		"PRAGMA journal_mode = WAL; see SQLiteDSN")
	const full, normal = 2, 1
	e.Volatile = synchronous < full
	e.add(synchronous < normal, health.Warning, "sqlite-synchronous", "synchronous", "OFF",
		"A power failure may destroy the file, with the marks of Once in it.",
		"PRAGMA synchronous = NORMAL; on every connection: see SQLiteDSN")
}

// sqliteFileSystem judges the kind of the file system that the file is on; "" is unknown.
func (e *examination) sqliteFileSystem(kind string) {
	shared := isShared(kind)
	e.add(shared, health.Error, "sqlite-network", "file system", kind,
		"SQLite's own locks do not work there between hosts, so each host may have a holder of every lock.",
		"move the file to a disk of one host, and write its path into the URL; for several hosts take a server, "+
			"such as PostgreSQL or Redis")
	e.add(!shared && strings.HasPrefix(kind, "fuse"), health.Warning, "sqlite-network", "file system", kind,
		"A program serves this file system. Whether it keeps SQLite's locks apart, and those of other hosts, is not "+
			"known.",
		"move the file to a disk of one host, and write its path into the URL")
}

// isShared reports whether several hosts may have a file system of this kind.
func isShared(kind string) bool {
	return slices.Contains([]string{
		"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "afs", "ceph", "fuse.ceph", "lustre", "beegfs",
		"gpfs", "gfs2", "ocfs2", "orangefs", "pvfs2", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "fuse.s3fs",
		"fuse.gcsfuse", "vboxsf", "vmhgfs", "fuse.vmhgfs-fuse", "prl_fs", "coda",
	}, kind)
}

// mountedAs returns the kind of the file system in which path is, an absolute path without
// symlinks, by the text of Linux's mountinfo: "36 35 98:0 /root /mnt rw shared:1 - ext3 /dev/sda …".
func mountedAs(mountinfo, path string) (kind string) {
	longest := -1
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		at, as := strings.Fields(before), strings.Fields(after)
		if !ok || len(at) < 5 || len(as) < 1 {
			continue
		}
		dir := strings.TrimSuffix(unescape.Replace(at[4]), "/")
		// What is mounted later over the same place hides what was there.
		if len(dir) >= longest && strings.HasPrefix(path+"/", dir+"/") {
			longest, kind = len(dir), as[0]
		}
	}
	return kind
}
