#!/usr/bin/env bash
# Makes sure that the servers which the tests start are installed.
#
# On Debian and its relatives, as root, it installs what is missing. Elsewhere it
# says what to install. It prints the names of the servers that are still missing
# on standard output, one a line, and everything else on standard error.
set -euo pipefail

missing=()
command -v redis-server >/dev/null || missing+=(redis-server)
[ ${#missing[@]} -gt 0 ] || exit 0

if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
	echo "installing ${missing[*]} (used by tests only, each test starts its own on a free port)" >&2
	export DEBIAN_FRONTEND=noninteractive
	# The package would start a server of its own at once; the tests want none.
	policy=/usr/sbin/policy-rc.d
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' >$policy
		chmod 755 $policy
		trap 'rm -f '$policy EXIT
	fi
	apt-get update -qq >&2 || true
	apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1 ||
		echo "could not install ${missing[*]}" >&2
fi

for server in "${missing[@]}"; do
	command -v "$server" >/dev/null || echo "$server"
done
