#!/usr/bin/env bash
# Checks what we promise for other platforms, tests included: what users import and
# run for all of them, what we measure and prove with where we develop. (lint.sh does
# the same for this one.) Nothing is compiled: see tools/typecheck.
set -euo pipefail
cd "$(dirname "$0")/.."
ours=(./... ./redislock/... ./etcdlock/... ./zklock/... ./natslock/... ./s3lock/... ./storeurl/... ./httplock/...
	./promfence/... ./otelfence/... ./cmd/fencelock/...)
developed=(./lab/... ./verify/... ./examples/...)

GOWORK=off go -C tools build -o ../bin/typecheck ./typecheck
bin/typecheck -tests -tags verify . linux/arm64 windows/amd64 -- "${ours[@]}"
bin/typecheck -tests -tags verify . darwin/arm64 -- "${ours[@]}" "${developed[@]}"
echo "types are right on arm64, Windows and macOS"
