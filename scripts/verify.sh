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

parts=(stores sequences every cut random models judges others observe reports)
[ $# -gt 0 ] || set -- "${parts[@]}"

missing=$(scripts/servers.sh gunicorn celery python3-redis php-cli php-pgsql php-symfony-lock tmux screen bindfs | tr '\n' ' ')
[ -z "$missing" ] || { echo "missing: $missing; install it" >&2; exit 1; }

tags=(-tags=verify)
flags=(-count=1)
export FENCELOCK_SEED=${FENCELOCK_SEED:-random} # make test plays the same random sequences each time

# stores runs the tests with the build tag verify that no other part runs, side by side. A package with a file
# tier_verify_test.go, or another that has no test of its own, runs all of its tests: the file changes them. The race
# detector, which triples the time of a server in the same process, has seen their code in make test.
stores() {
	local tags=("${tags[@]}" -race=false) folder tests whole=() some=() names=
	while read -r folder; do
		if [ ! -e "$folder/tier_verify_test.go" ] && tests=$(tagged "$folder" | xargs grep -ohE '^func Test[A-Za-z0-9_]+'); then
			some+=("./$folder")
			names+=$(sed 's/^func /|/' <<<"$tests" | tr -d '\n')
		else
			whole+=("./$folder")
		fi
	done < <(tagged . | xargs -n1 dirname | sort -u)
	some+=(./zklock) names+='|TestLaws|TestLawsOfGroups' # laws that take long on a real store
	run 'stores, some tests' '' . "${some[@]}" -run "^(${names#|})\$" -skip "$by_the_hundred"
	run 'stores, all tests' '' . "${whole[@]}"
}

# sequences plays random sequences by the hundred, without the race detector as well: what they look for are answers
# that differ from the model's.
by_the_hundred='^Test.*Model.*(Always|OnServers)$'
sequences() {
	local tags=("${tags[@]}" -race=false)
	run sequences '' . ./memlock ./swaplock ./s3lock ./verify/nats ./verify/s3 -run "$by_the_hundred"
	run 'sequences on databases' '' . ./verify/sql -run '^TestLaws$/./^Model$' -count 67 # three new ones each time
}

tagged() { git grep -l '^//go:build.*\bverify\b' -- "$1/*_test.go" ':!verify/reports' ':!verify/others'; }

for part in "$@"; do
	begun=$SECONDS
	case $part in
	stores | sequences) "$part" ;;
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
