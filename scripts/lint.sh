#!/usr/bin/env bash
# Formatting, golangci-lint (.golangci.yml) over all modules, tests that measure the machine, and
# that the twins of the documentation have the same headings and code blocks.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tests.bash
modules=(. redislock etcdlock zklock natslock s3lock storeurl httplock promfence otelfence lab cmd/fencelock verify examples)

unformatted=$(git ls-files -z '*.go' | xargs -0 gofmt -l)
[ -z "$unformatted" ] || { echo "not gofmt-ed: $unformatted" >&2; exit 1; }

linter=$(GOWORK=off go -C tools tool -n golangci-lint) # builds it, once
GOWORK=off go -C tools build -o ../bin/typecheck ./typecheck
for module in "${modules[@]}" integrations tools; do
	(
		cd "$module"
		case $module in integrations | tools) export GOWORK=off ;; esac
		packages=$(go list ./... 2>/dev/null)
		[ -n "$packages" ] || exit 0
		echo "lint $module"
		# As make test compiles it, for that is most of the time.
		GOFLAGS="-race ${unraced[*]}" "$linter" run --allow-parallel-runners ./...
	)
	# A module must be complete without the workspace: users have none.
	GOWORK=off bin/typecheck "$module" "$(go env GOOS)/$(go env GOARCH)" -- ./...
done

# No test measures the machine.
(cd tools && GOWORK=off go run ./realtime ..)

# Its yaml module is not the one that golangci-lint builds with, so it has no line in tools/go.mod.
go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 -shellcheck= -pyflakes= "$PWD"/.github/workflows/*.yml

for twin in $(git ls-files '*.zh-CN.md'); do
	original=${twin%.zh-CN.md}.md
	[ -f "$original" ] || { echo "$twin has no $original" >&2; exit 1; }
	shape() { # levels of headings, and code blocks to the letter, comments aside
		awk '/^```/ { code = !code; print; next } code { sub(/ *(#|\/\/) .*/, ""); print; next } /^#/ { print $1 }' "$1"
	}
	diff <(shape "$original") <(shape "$twin") >&2 || { echo "$original and $twin differ in headings or code" >&2; exit 1; }
done
echo "lint is clean"
