# What scripts/test.sh and scripts/verify.sh share: bash reads it, nobody runs it.

# Packages of verify that make verify runs, whole. A test of another package that make verify
# runs is in a file with the build tag verify.
folders=(torture check model traffic every cut bubble model-checking others observe)

# SQLite, C translated to Go, is left out of race detection: it has no goroutines of its
# own, and takes twice the time with it. So is the client of ZooKeeper, which races with
# itself when it connects again (github.com/go-zookeeper/zk/pull/35). That of Redis cannot be: it
# brings a copy of sync.Map of its own, and the linker may take that for all.
unraced=(-gcflags=modernc.org/...=-race=false -gcflags=github.com/go-zookeeper/...=-race=false)

# The tests of a store wait some of the time, for leases and for servers. So one package more than there are processors
# runs at a time.
side_by_side=${FENCELOCK_TEST_PARALLEL:-$(($(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN) + 1))}

printed=$(mktemp)
trap 'rm -f "$printed"' EXIT

# name_failed names what failed once more, at the end, with what runs each test again: a test that fails
# prints the logs of its servers, thousands of lines at times. A message has up to six lines here.
name_failed() { # FOLDER WORKSPACE
	echo "== what failed"
	awk '/^ *--- FAIL|^FAIL\t|^panic: |^WARNING: DATA RACE|^ +FAIL: / { print; more = 0; next }
		/^ +[a-z_0-9]+\.go:[0-9]+: / { more = / log of [^ ]+ on / ? 0 : 6 }
		more > 0 { print; more-- }' "$printed" | cut -c 1-300 | tail -60
	echo "== to run it again${1:+, in $1}"
	awk -v again="${2:+GOWORK=$2 }go test -race ${unraced[*]}${tags[*]+ ${tags[*]}} -count=1" '
		function pattern(test) { # of -run: each part is an expression
			gsub(/[][\\.+*?(){}|^$]/, "\\\\&", test)
			gsub(/\//, "$/^", test)
			return "'\''^" test "$'\''"
		}
		/^ *--- FAIL: / { failed[++n] = $3 }
		/^FAIL\t/ {
			if (n == 0) print again, $2
			for (i = 1; i <= n; i++) {
				inner = 0
				for (j = 1; j <= n; j++) if (index(failed[j], failed[i] "/") == 1) inner = 1
				if (!inner) print again " -run " pattern(failed[i]) " " $2
			}
			n = 0
		}
		/^ok / { n = 0 }' "$printed"
	exit 1
} >&2

# run tests packages with the flags in the array flags, with the race detector. All is compiled before the first test
# begins, and on the disk: a compiler takes the processors from the tests, and gigabytes that it has written hold up the
# servers of the tests for seconds. The time limit is for a busy machine. What go vet finds, make lint finds.
run() { # NAME WORKSPACE FOLDER PACKAGE...
	local name=$1 workspace=$2 folder=$3 begun=$SECONDS package packages=()
	shift 3
	for package in "$@"; do
		[[ $package != -* ]] || break # the rest is for go test
		packages+=("$package")
	done
	echo "== $name"
	(
		cd "$folder" && export GOWORK=$workspace &&
			go list -test -export -race "${unraced[@]}" ${tags[@]+"${tags[@]}"} "${packages[@]}" >/dev/null &&
			sync && go test -race -vet=off "${unraced[@]}" ${tags[@]+"${tags[@]}"} -p "$side_by_side" -timeout 40m ${flags[@]+"${flags[@]}"} "$@" | tee "$printed"
	) || name_failed "${folder#.}" "$workspace"
	echo "== $name: $((SECONDS - begun)) s"
}
