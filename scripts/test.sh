#!/usr/bin/env bash
# Runs all tests with the race detector. A module whose server is missing is named
# at the end, in so many words; with FENCELOCK_REQUIRE_SERVERS=1 it is a failure.
# The time limit is for a busy machine: on a quiet one each module takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=$(scripts/servers.sh)
if [ -n "$missing" ] && [ "${FENCELOCK_REQUIRE_SERVERS:-}" = 1 ]; then
	echo "missing: $missing; install it, or leave FENCELOCK_REQUIRE_SERVERS unset to test the rest" >&2
	exit 1
fi

# One module after the other: their tests start servers and processes, and measure time.
modules=(. verify)
[ -n "$missing" ] || modules+=(redislock cmd/fencelock examples)
for module in "${modules[@]}"; do
	echo "== $module"
	(cd "$module" && go test -race -p 2 -timeout 40m "$@" ./...)
done

if [ -n "$missing" ]; then
	echo "NOT RUN: redislock, cmd/fencelock, examples. They need: $missing"
	echo "Install it (Debian: apt-get install redis-server; macOS: brew install redis) and run make test again."
else
	echo "all tests have run"
fi
