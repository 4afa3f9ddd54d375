#!/usr/bin/env bash
# Makes sure that the servers which the tests start are installed.
#
# On Debian and its relatives, as root, it installs what is missing. Elsewhere it
# says what to install. It prints the names of the servers that are still missing
# on standard output, one a line, and everything else on standard error.
#
#   scripts/servers.sh [PACKAGE...]    with these of Debian as well, which make verify runs
set -euo pipefail

# Each server: its package on Debian, and a file or command that tells that it is there.
# With ip, tests cut networks of their own on Linux. python3, nodejs, npm and curl run
# clients, prometheus scrapes, chromium shows the console, and spin with a C compiler checks
# the models.
there() {
	case $1 in
	redis-server) command -v redis-server ;;
	postgresql) command -v postgres || ls /usr/lib/postgresql/*/bin/postgres ;;
	pgbouncer) command -v pgbouncer || [ -x /usr/sbin/pgbouncer ] ;;
	galera-4) [ -e /usr/lib/galera/libgalera_smm.so ] || [ -e /usr/lib/libgalera_smm.so ] ;;
	rsync) command -v rsync ;;
	pgpool2) command -v pgpool || [ -x /usr/sbin/pgpool ] ;;
	mariadb-server) command -v mariadbd || [ -x /usr/sbin/mariadbd ] ;;
	prometheus) command -v prometheus && command -v promtool ;;
	zookeeper) [ -e /usr/share/java/zookeeper.jar ] ;;
	default-jre-headless) command -v java ;;
	python3) command -v python3 ;;
	nodejs) command -v node ;;
	npm) command -v npm ;;
	curl) command -v curl ;;
	chromium) command -v chromium ;;
	spin) command -v spin ;;
	gcc) command -v gcc ;;
	libc6-dev) [ "$(uname)" != Linux ] || [ -e /usr/include/stdio.h ] ;;
	gunicorn) /usr/bin/python3 -c 'import gunicorn' ;;
	celery) /usr/bin/python3 -c 'import celery' ;;
	python3-redis) /usr/bin/python3 -c 'import redis' ;;
	php-cli) command -v php ;;
	php-pgsql) php -r 'exit(extension_loaded("pdo_pgsql") ? 0 : 1);' ;;
	php-symfony-lock) [ -e /usr/share/php/Symfony/Component/Lock/autoload.php ] ;;
	tmux) command -v tmux ;;
	screen) command -v screen ;;
	bindfs) command -v bindfs ;;
	iproute2) [ "$(uname)" != Linux ] || command -v ip || [ -x /sbin/ip ] ;;
	esac >/dev/null 2>&1
}
servers=(redis-server postgresql pgbouncer mariadb-server zookeeper default-jre-headless iproute2 python3 nodejs
	npm curl prometheus chromium spin gcc libc6-dev pgpool2 galera-4 rsync "$@")

missing=()
for server in "${servers[@]}"; do
	there "$server" || missing+=("$server")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
	echo "installing ${missing[*]} (used by tests only, each test starts its own on a free port)" >&2
	export DEBIAN_FRONTEND=noninteractive
	# The packages would start servers of their own at once; the tests want none.
	policy=/usr/sbin/policy-rc.d
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' >$policy
		chmod 755 $policy
		trap 'rm -f '$policy EXIT
	fi
	apt-get update -qq >&2 || true
	extra=()
	case " ${missing[*]} " in *" chromium "*) extra=(fonts-liberation fonts-wqy-microhei) ;; esac # it brings no fonts
	apt-get install -y -qq --no-install-recommends "${missing[@]}" ${extra[@]+"${extra[@]}"} >/dev/null 2>&1 ||
		echo "could not install ${missing[*]}" >&2
fi

for server in "${missing[@]}"; do
	there "$server" || echo "$server"
done
