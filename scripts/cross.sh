#!/usr/bin/env bash
# Builds everything for the platforms we promise, tests included.
set -euo pipefail
cd "$(dirname "$0")/.."
for target in linux/amd64 linux/arm64 darwin/arm64 windows/amd64; do
	export GOOS=${target%/*} GOARCH=${target#*/} CGO_ENABLED=0
	for module in . redislock cmd/fencelock verify examples; do
		(cd "$module" && { [ -z "$(go list ./... 2>/dev/null)" ] || go vet ./...; })
	done
	echo "builds for $target"
done
