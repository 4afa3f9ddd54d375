#!/usr/bin/env bash
# Builds what we promise for other platforms, tests included: what users import and
# run for all of them, what we measure and prove with where we develop. (lint.sh does
# the same for this one.)
set -euo pipefail
cd "$(dirname "$0")/.."
ours=(. redislock etcdlock zklock natslock s3lock storeurl httplock promfence otelfence cmd/fencelock)
for target in linux/arm64 windows/amd64 darwin/arm64; do
	export GOOS=${target%/*} GOARCH=${target#*/} CGO_ENABLED=0
	modules=("${ours[@]}")
	[ "$GOOS" != darwin ] || modules+=(lab verify examples)
	for module in "${modules[@]}"; do
		(cd "$module" && go vet -tags verify ./...)
	done
	echo "builds for $target"
done
