#!/usr/bin/env bash
# Runs all tests with the race detector. With a server missing, the modules that need
# none are tested, and the others are named at the end, in so many words; with
# FENCELOCK_REQUIRE_SERVERS=1 it is a failure.
# The time limit is for a busy machine: on a quiet one each package takes minutes at most.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=$(scripts/servers.sh | tr '\n' ' ')
if [ -n "$missing" ] && [ "${FENCELOCK_REQUIRE_SERVERS:-}" = 1 ]; then
	echo "missing: $missing; install it, or leave FENCELOCK_REQUIRE_SERVERS unset to test the rest" >&2
	exit 1
fi

# SQLite, C translated to Go, is left out of race detection: it has no goroutines of its
# own, and takes twice the time with it. So is the client of ZooKeeper, which races with
# itself when it connects again (github.com/go-zookeeper/zk/pull/35). That of Redis cannot be: it
# brings a copy of sync.Map of its own, and the linker may take that for all.
unraced=(-gcflags=modernc.org/...=-race=false -gcflags=github.com/go-zookeeper/...=-race=false)

# The tests of a store wait most of the time, for leases and for servers. So packages run side by
# side, the longest ones first. With three of them two processors were busy for minutes on end,
# and each run of CI had another test that was served too late.
side_by_side=${FENCELOCK_TEST_PARALLEL:-2}

# Packages of verify that need a program which no other needs are left out without it. That of
# the models runs by itself: it would take the processors from tests that measure time.
stores='' # is set if the tests of the stores cannot run
left_out=model-checking
models=1
for name in $missing; do
	case $name in
	npm | default-jdk-headless | php-cli | php-curl | curl) left_out+='|languages' ;;
	prometheus) left_out+='|observe' ;;
	chromium) left_out+='|console' ;;
	spin | gcc | libc6-dev) models='' ;;
	*) stores=missing ;;
	esac
done
if [ -n "$stores" ]; then
	packages=(./... ./httplock/... ./promfence/... ./otelfence/...)
else
	all=$(go list $(go list -m -f '{{.Dir}}/...') | grep -vE "/verify/($left_out)\$")
	packages=(./redislock/... ./zklock/... ./verify/sql ./verify/every ./verify/torture ./verify/etcd $all)
fi

printed=$(mktemp)
trap 'rm -f "$printed"' EXIT

# A test that fails prints the logs of its servers, thousands of lines at times. So what failed is
# named once more at the end.
name_failed() {
	echo "== what failed"
	grep -aE '^ *--- FAIL|^FAIL|^panic: |^WARNING: DATA RACE|^ +[a-z_0-9]+_test\.go:[0-9]+: ' "$printed" | cut -c 1-300 | tail -40
	exit 1
} >&2

# All is compiled before the first test begins: a compiler takes the processors from tests
# that measure time.
run() { # NAME WORKSPACE FOLDER PACKAGE...
	local name=$1 workspace=$2 folder=$3 begun=$SECONDS
	shift 3
	echo "== $name"
	(
		cd "$folder" && export GOWORK=$workspace &&
			go list -test -export -race "${unraced[@]}" "$@" >/dev/null &&
			go test -race "${unraced[@]}" -p "$side_by_side" -timeout 40m ${flags[@]+"${flags[@]}"} "$@" | tee "$printed"
	) || name_failed
	echo "== $name: $((SECONDS - begun)) s"
}
flags=("$@")
run workspace '' . "${packages[@]}"
[ -n "$stores" ] && run SQLite '' . -run '/^SQLite$' ./verify/sql
[ -n "$models" ] && run models '' . ./verify/model-checking
for module in integrations/*/ examples/migration/ tools/release/; do # not in the workspace
	[ -n "$stores" ] && [ "$module" = examples/migration/ ] && continue
	run "${module%/}" off "$module" ./...
done

if [ -n "$missing" ]; then
	echo "NOT RUN: everything that needs $missing"
	echo "Install that (Debian: as root, make test does it by itself) and run make test again."
else
	echo "all tests have run"
fi
