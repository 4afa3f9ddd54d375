#!/usr/bin/env bash
# Runs the tests that need no server, with the race detector, in about a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tests.bash

run 'without servers' '' . . ./driver/... ./memlock/... ./sqllock/... ./fence/... ./elect/... ./drivertest/...
run SQLite '' . ./verify/sql -run '/^SQLite$'
run 'random programs' '' . ./verify/bubble -run RandomPrograms -rapid.checks=200
