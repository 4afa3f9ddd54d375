#!/usr/bin/env bash
# Runs the tests that a pull request needs, with the race detector, on real servers. What takes
# longer is in scripts/verify.sh. With a server missing, the modules that need none are tested,
# and the others are named at the end; with FENCELOCK_REQUIRE_SERVERS=1 it is a failure.
#
#   scripts/test.sh [FLAG...]    the flags go to go test, such as -count=1
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tests.bash

missing=$(scripts/servers.sh | tr '\n' ' ')
if [ -n "$missing" ] && [ "${FENCELOCK_REQUIRE_SERVERS:-}" = 1 ]; then
	echo "missing: $missing; install it, or leave FENCELOCK_REQUIRE_SERVERS unset to test the rest" >&2
	exit 1
fi

# Parts of verify that make verify runs, and packages that need a program which no other needs.
left_out=$(for part in "${folders[@]}"; do printf '%s|' "$part"; done)
stores='' # is set if the tests of the stores cannot run
for name in $missing; do
	case $name in
	npm | curl) left_out+='languages|' ;;
	chromium) left_out+='console|' ;;
	prometheus | spin | gcc | libc6-dev | pgpool2 | galera-4 | rsync) ;; # make verify needs them
	*) stores=missing ;;
	esac
done
if [ -n "$stores" ]; then
	packages=(./... ./httplock/... ./promfence/... ./otelfence/...)
else
	# The longest ones first.
	all=$(go list $(go list -m -f '{{.Dir}}/...') | grep -vE "/verify/(${left_out%|})\$")
	packages=(./verify/sql ./cmd/fencelock ./redislock/... ./verify/doctor ./etcdlock ./verify/serve ./zklock/... ./quorumlock
		./verify/quorum ./verify/console $all)
fi

flags=("$@")
run workspace '' . "${packages[@]}"
[ -n "$stores" ] && run SQLite '' . ./verify/sql -run '/^SQLite$'
run 'random programs' '' . ./verify/bubble -run RandomPrograms -rapid.checks=200
# These are not in the workspace.
all=$(cd integrations && GOWORK=off go list ./... | grep -vE "/(${stores:+gooselock|migration})\$")
run integrations off integrations $all
run tools off tools ./...

if [ -n "$missing" ]; then
	echo "NOT RUN: everything that needs $missing"
	echo "Install that (Debian: as root, make test does it by itself) and run make test again."
else
	echo "all tests have run in $SECONDS s; make verify has the rest"
fi
