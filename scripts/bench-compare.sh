#!/usr/bin/env bash
# Runs the Go benchmarks of this tree and of an earlier commit by turns, and has benchstat
# compare them. The argument is a commit or a tag. Without one, or with "last", it is the
# last tag, or the first commit where there is no tag. ROUNDS is how often each is run.
set -euo pipefail
cd "$(dirname "$0")/.."
now=$PWD
ref=${1:-last}
[ "$ref" != last ] || ref=$(git describe --tags --abbrev=0 2>/dev/null || git rev-list --max-parents=0 HEAD | tail -1)
rounds=${ROUNDS:-6} # benchstat wants as many
packages=(. memlock redislock)
benchmarks='FreeLock|FreePair|HandOver/1000?$'

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/before" "$dir/bin"
git archive "$ref" | tar -x -C "$dir/before" # leaves no trace in the repository

for tree in "$dir/before" "$now"; do
	for package in "${packages[@]}"; do
		(cd "$tree/$package" && go test -c -o "$dir/bin/$(basename "$tree")-$package.test") ||
			echo "$package in $tree does not compile, and is left out" >&2
	done
done
for round in $(seq "$rounds"); do
	echo "round $round of $rounds" >&2
	for tree in "$dir/before" "$now"; do
		for package in "${packages[@]}"; do
			program=$dir/bin/$(basename "$tree")-$package.test
			[ -x "$program" ] || continue
			(cd "$tree/$package" && "$program" -test.run '^$' \
				-test.bench "$benchmarks" -test.benchmem -test.benchtime 0.5s)
		done | tee -a "$dir/$(basename "$tree").txt" >&2
	done
done
cd verify
go tool benchstat "$ref=$dir/before.txt" "now=$dir/$(basename "$now").txt"
