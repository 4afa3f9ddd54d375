#!/usr/bin/env bash
# Compares the public API of each module with the last release, or with the commit that is
# the argument. An incompatible change fails, unless docs/api-breaks.txt has its line: a list
# of the breaks that are intended until v1.
set -euo pipefail
cd "$(dirname "$0")/.."
now=$PWD
ref=${1:-$(git tag --list 'v*' --merged HEAD --sort=-v:refname | head -1)}
[ -n "$ref" ] || { echo "there is no release yet to compare the API with"; exit 0; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/before"
touch "$dir/found"
git archive "$ref" | tar -x -C "$dir/before"
GOWORK=off go -C tools/apidiff build -o "$dir/apidiff" golang.org/x/exp/cmd/apidiff

for module in . redislock etcdlock zklock storeurl httplock promfence otelfence integrations/*/; do
	module=${module%/}
	[ -f "$dir/before/$module/go.mod" ] || continue # it is new
	path=$(sed -n 's/^module //p' "$module/go.mod")
	case $module in integrations/*) export GOWORK=off ;; esac
	for tree in "$dir/before" "$now"; do
		(cd "$tree/$module" && "$dir/apidiff" -m -w "$dir/$(basename "$tree").api" "$path") 2>>"$dir/log" ||
			{ cat "$dir/log" >&2; exit 1; }
	done
	"$dir/apidiff" -m -incompatible "$dir/before.api" "$dir/$(basename "$now").api" >"$dir/changes" 2>>"$dir/log"
	# The root module's pattern takes in the other modules of the workspace.
	sed -n "s|^- |$module: |p" "$dir/changes" | sed -E '/^\.: \.\/(verify|lab|examples|cmd|redislock|etcdlock|zklock|storeurl|httplock|promfence|otelfence|integrations)\//d' >>"$dir/found"
done

grep -vxFf <(grep -v '^#' docs/api-breaks.txt) "$dir/found" >"$dir/unlisted" || true
if [ -s "$dir/unlisted" ]; then
	echo "the API differs from $ref incompatibly:" >&2
	cat "$dir/unlisted" >&2
	echo "undo that, or, before v1, put the lines into docs/api-breaks.txt" >&2
	exit 1
fi
echo "the API of all modules is compatible with $ref, but for $(wc -l <"$dir/found") intended breaks"
