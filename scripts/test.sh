#!/usr/bin/env bash
# Runs all tests with the race detector. With a server missing, the modules that need
# none are tested, and the others are named at the end, in so many words; with
# FENCELOCK_REQUIRE_SERVERS=1 it is a failure.
# The time limit is for a busy machine: on a quiet one each module takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=$(scripts/servers.sh | tr '\n' ' ')
if [ -n "$missing" ] && [ "${FENCELOCK_REQUIRE_SERVERS:-}" = 1 ]; then
	echo "missing: $missing; install it, or leave FENCELOCK_REQUIRE_SERVERS unset to test the rest" >&2
	exit 1
fi

# One module after the other: their tests start servers and processes, and measure
# time. SQLite, C translated to Go, is left out of race detection: it has no
# goroutines of its own, and takes twice the time with it. So is the client of ZooKeeper,
# which races with itself when it connects again (github.com/go-zookeeper/zk/pull/35).
unraced=(-gcflags=modernc.org/...=-race=false -gcflags=github.com/go-zookeeper/...=-race=false)
runs=(". ./...")
for module in integrations/*/; do # not in the workspace
	runs+=("${module%/} ./...")
done
if [ -n "$missing" ]; then
	runs+=("verify ./sqlite")
else
	for module in verify etcdlock redislock zklock lab cmd/fencelock examples examples/migration; do
		runs+=("$module ./...")
	done
fi
for run in "${runs[@]}"; do
	read -r module packages <<<"$run"
	echo "== $run"
	begun=$SECONDS
	workspace=
	case $module in integrations/* | examples/migration) workspace=off ;; esac
	(cd "$module" && GOWORK=$workspace go test -race "${unraced[@]}" -p 2 -timeout 40m "$@" "$packages")
	echo "== $run: $((SECONDS - begun)) s"
done

if [ -n "$missing" ]; then
	echo "NOT RUN: everything that needs $missing"
	echo "Install that (Debian: as root, make test does it by itself) and run make test again."
else
	echo "all tests have run"
fi
