#!/usr/bin/env bash
# Runs the proof that takes too long for a pull request: before a release, and each night.
#
#   scripts/verify.sh [PART...]    the parts below; without any, all but torture and mutants
#
# verify/README.md says what each part shows and how long it takes. The environment: FOR=10m is
# how long torture goes on, all stores together.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tests.bash

parts=(stores every cut random models judges others observe reports)
[ $# -gt 0 ] || set -- "${parts[@]}"

missing=$(scripts/servers.sh gunicorn celery python3-redis php-cli php-pgsql php-symfony-lock tmux screen bindfs | tr '\n' ' ')
[ -z "$missing" ] || { echo "missing: $missing; install it" >&2; exit 1; }

tags=(-tags=verify)
flags=(-count=1)
export FENCELOCK_SEED=${FENCELOCK_SEED:-random} # make test plays the same random sequences each time

# stores runs the tests with the build tag verify of the packages that make test runs.
stores() {
	local file folder names
	git grep -l '^//go:build.*\bverify\b' -- '*_test.go' ':!verify/reports' | xargs -r -n1 dirname | sort -u | while read -r folder; do
		names=$(git grep -l '^//go:build.*\bverify\b' -- "$folder/*_test.go" | xargs grep -ohE '^func Test[A-Za-z0-9_]+' |
			sed 's/^func //' | paste -sd'|') || names='.*'
		# Such a file changes what the tests of others do.
		[ ! -e "$folder/tier_verify_test.go" ] || names='.*'
		case $folder in
		integrations/*) run "$folder" off "$folder" . -run "^($names)\$" ;;
		*) run "$folder" '' . "./$folder" -run "^($names)\$" ;;
		esac
	done
	# Laws that take long on a real store.
	run 'long laws' '' . ./redislock ./etcdlock ./zklock ./verify/nats -run '^TestLaws(OfGroups)?$'
}

for part in "$@"; do
	begun=$SECONDS
	case $part in
	stores) stores ;;
	others)
		(cd verify/others/adapters/node && npm ci --no-audit --no-fund --loglevel=error)
		run others '' . ./verify/others
		;;
	every | cut | observe | reports) run "$part" '' . "./verify/$part" ;;
	random) run random '' . ./verify/bubble ;;
	models) run models '' . ./verify/model-checking -timeout 1h -large ;;
	judges) run judges '' . ./verify/torture ./verify/check ./verify/model ./verify/traffic ;;
	torture)
		(cd verify && go run ./cmd/torture -start all -for "${FOR:-1h}" -dir "../torture/$(date -u +%Y-%m-%dT%H%M%SZ)")
		;;
	mutants) (cd verify && go run ./cmd/mutants) ;;
	*)
		echo "scripts/verify.sh: there is no part $part; there are ${parts[*]} torture mutants" >&2
		exit 2
		;;
	esac
	echo "== part $part: $((SECONDS - begun)) s"
done
